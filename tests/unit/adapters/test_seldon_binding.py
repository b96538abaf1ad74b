"""What a model that declares its inputs gets of a message, and which way a body takes to it."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from seldon_requests import decoded, graph, request, spec, user_class, x

from adapters.seldon import fast
from gateway.errors import BodyTooLarge, InvalidTensor
from gateway.interfaces import DecodeLimits
from gateway.types import ModelMetadata, Reply, Tensor, TensorSpec

PNG = b"\x89PNG not really"
PNG_TEXT = base64.b64encode(PNG).decode()


# Inputs...

VECTOR, ROWS = spec("float32", None), spec("float32", None, 2)
IMAGE = spec("float32", None, 1, 2, 2, media="image")


def bound(message: dict[str, Any], **inputs: TensorSpec) -> dict[str, Any]:
    """The inputs, as lists."""
    found = request(json.dumps(message), graph(**inputs)).inputs
    return {name: tensor.tolist() for name, tensor in found.items()}


@pytest.mark.parametrize(
    ("message", "one", "values"),
    [
        ({"data": {"ndarray": [[1, 2]]}}, ROWS, [[1.0, 2.0]]),
        ({"data": {"tensor": {"shape": [1, 2], "values": [1, 2]}}}, ROWS, [[1.0, 2.0]]),
        ({"data": {"tftensor": {"dtype": "DT_INT32", "tensorShape": {"dim": [{"size": 2}]}, "intVal": [1, 2]}}},
         VECTOR, [1.0, 2.0]),
        ({"jsonData": [[1, 2]]}, ROWS, [[1.0, 2.0]]),
        ({"jsonData": {"x": [[1, 2]]}}, ROWS, [[1.0, 2.0]]),
        ({"data": {"names": ["whatever", "they", "are"], "ndarray": [[1, 2]]}}, ROWS, [[1.0, 2.0]]),
        # One dimension less, or flat...
        ({"data": {"ndarray": [1, 2]}}, ROWS, [[1.0, 2.0]]),
        ({"jsonData": 5}, VECTOR, [5.0]),
        ({"data": {"ndarray": [[1, 2, 3, 4]]}}, IMAGE, [[[[1.0, 2.0], [3.0, 4.0]]]]),
        ({"data": {"ndarray": [1, 2, 3, 4]}}, IMAGE, [[[[1.0, 2.0], [3.0, 4.0]]]]),
        ({"data": {"ndarray": [1, 2, 3]}}, spec("float32", None, 1), [[1.0], [2.0], [3.0]]),
        ({"data": {"ndarray": [1, 2, 3]}}, ROWS, [1.0, 2.0, 3.0]),  # the model will complain
        # Dtypes, exactly...
        ({"data": {"ndarray": [1.0, 2.0]}}, spec("int32", None), [1, 2]),
        ({"data": {"ndarray": [9007199254740993, 1.0]}}, spec("int64", None), [9007199254740993, 1]),
        ({"data": {"ndarray": [18446744073709551615, 0.0]}}, spec("uint64", None), [18446744073709551615, 0]),
        ({"data": {"ndarray": [True, 0]}}, spec("bool", None), [True, False]),
        ({"data": {"ndarray": [1 << 70]}}, VECTOR, [float(1 << 70)]),
        ({"data": {"ndarray": ["a", "b"]}}, spec("string", None), ["a", "b"]),
        ({"data": {"ndarray": []}}, spec("string", None), []),
        # Texts and bytes...
        ({"strData": "t"}, spec("string", None), ["t"]),
        ({"strData": "t"}, spec("string", None, 1), [["t"]]),
        ({"strData": "t"}, TensorSpec("", "string", None), ["t"]),
        ({"binData": PNG_TEXT}, spec("string", None), [PNG]),
        ({"strData": PNG_TEXT}, IMAGE, [PNG]),
        ({"strData": f"data:image/png;base64,{PNG_TEXT}"}, IMAGE, [PNG]),
        ({"binData": PNG_TEXT}, IMAGE, [PNG]),
        ({"data": {"ndarray": [PNG_TEXT, PNG_TEXT]}}, IMAGE, [PNG, PNG]),
        ({"binData": "AQID"}, spec("uint8", None), [1, 2, 3]),
        ({"binData": "AQIDBA=="}, spec("uint8", None, 2), [[1, 2], [3, 4]]),
        ({"strData": "AQID"}, spec("uint8", None), [1, 2, 3]),
    ],
)  # fmt: skip
def test_payload_is_bound(message: dict[str, Any], one: TensorSpec, values: Any) -> None:
    """Every payload that can mean the model's only input does."""
    assert bound(message, x=one) == {"x": values}


@pytest.mark.parametrize(
    "message",
    [
        {"jsonData": {"a": [1, 2], "b": [["x"], ["y"]]}},
        {"data": {"names": ["a", "b"], "ndarray": [[1, "x"], [2, "y"]]}},
        {"data": {"names": ["b", "a"], "ndarray": [["x", 1], ["y", 2]]}},
    ],
)
def test_several_inputs_are_bound(message: dict[str, Any]) -> None:
    """By name, or one column each."""
    assert bound(message, a=spec("int64", None), b=spec("string", None, 1)) == {"a": [1, 2], "b": [["x"], ["y"]]}


def test_columns_of_a_tensor_are_bound() -> None:
    """A matrix of numbers has columns too."""
    message = {"data": {"names": ["b", "a"], "tensor": {"shape": [2, 2], "values": [1, 2, 3, 4]}}}
    assert bound(message, a=VECTOR, b=spec("float32", None, 1)) == {"a": [2.0, 4.0], "b": [[1.0], [3.0]]}


@pytest.mark.parametrize(
    ("message", "inputs", "text"),
    [
        ({"data": {"ndarray": [1.5]}}, {"x": spec("int32", None)}, "does not fit int32"),
        ({"data": {"ndarray": [300]}}, {"x": spec("uint8", None)}, "does not fit uint8"),
        ({"data": {"ndarray": [-1]}}, {"x": spec("uint64", None)}, "does not fit uint64"),
        ({"data": {"ndarray": [1 << 64]}}, {"x": spec("int64", None)}, "does not fit int64"),
        ({"data": {"ndarray": [10**400]}}, {"x": VECTOR}, "beyond float64"),
        ({"data": {"ndarray": [1, "a"]}}, {"x": VECTOR}, "the text 'a' is among the values"),
        ({"data": {"ndarray": [1, None]}}, {"x": VECTOR}, "null is among the values"),
        ({"data": {"ndarray": [{}]}}, {"x": VECTOR}, "an object is among the values"),
        ({"data": {"ndarray": ["a", 1]}}, {"x": spec("string", None)}, "1"),
        ({"data": {"ndarray": [1]}}, {"x": spec("string", None)}, "takes text"),
        ({"data": {"ndarray": ["a"]}}, {"x": VECTOR}, "the text 'a' is among the values"),
        ({"strData": "t"}, {"x": TensorSpec("", "float32", None)}, "this one takes float32$"),
        ({"strData": "t"}, {"x": VECTOR}, "strData feeds models that take text or images"),
        ({"binData": "AQ=="}, {"x": VECTOR}, "binData feeds models that take bytes or images"),
        ({"binData": "AQID"}, {"x": spec("uint8", None, 2)}, "3 bytes are no rows of 2"),
        ({"strData": "not base64!"}, {"x": IMAGE}, "strData is no base64"),
        ({"data": {"ndarray": ["!"]}}, {"x": IMAGE}, "the image is no base64"),
        ({"jsonData": {"z": 1}}, {"x": VECTOR}, "'z', which is no input; the inputs are x"),
        ({"jsonData": {"x": [1, [2]]}}, {"x": VECTOR}, "jsonData.x: the array is inhomogeneous"),
        ({"strData": "t"}, {"a": VECTOR, "b": VECTOR}, "several inputs"),
        ({"data": {"ndarray": [[1, 2]]}}, {"a": VECTOR, "b": VECTOR}, "several inputs"),
        ({"data": {"names": ["a", "z"], "ndarray": [[1, 2]]}}, {"a": VECTOR, "b": VECTOR}, "must be inputs"),
        ({"data": {"names": ["a", "a"], "ndarray": [[1, 2]]}}, {"a": VECTOR, "b": VECTOR}, "each once"),
        ({"data": {"names": ["a", "b"], "ndarray": [[1]]}}, {"a": VECTOR, "b": VECTOR}, "rows of 2 values"),
        ({"data": {"names": ["a", "b"], "tensor": {"shape": [1], "values": [1]}}}, {"a": VECTOR, "b": VECTOR},
         "one column for each name"),
        ({"strData": "t"}, {}, "takes no inputs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(message: dict[str, Any], inputs: dict[str, TensorSpec], text: str) -> None:
    """Never a number changed, and never a guess; the error says what is taken."""
    with pytest.raises(InvalidTensor, match=text):
        bound(message, **inputs)


def test_model_without_methods_answers_without_a_run() -> None:
    """Transformations are the identity, and there is nothing to route or aggregate."""
    model = graph(x=ROWS)
    found = decoded('{"data": {"ndarray": [["a"]]}, "meta": {"puid": "p"}}', model, "/transform-input")
    assert isinstance(found, Reply)
    assert json.loads(found.body) == {"data": {"names": ["t:0"], "ndarray": [["a"]]}, "meta": {"puid": "p"}}
    value = decoded('{"jsonData": [1]}', model, "/transform-output")
    assert isinstance(value, Reply)
    assert json.loads(value.body) == {"jsonData": [1], "meta": {}}
    thanks = decoded('{"reward": 1}', model, "/send-feedback")
    assert isinstance(thanks, Reply)
    assert json.loads(thanks.body) == {"data": {"tensor": {"shape": [0]}}, "meta": {}}
    for path, text in (("/route", "Route not defined"), ("/aggregate", "Aggregate not defined")):
        with pytest.raises(InvalidTensor, match=text):
            decoded('{"strData": "x"}', model, path)


# Which way...


def large(rows: int = 300) -> dict[str, Any]:
    """A body that is worth the fast way."""
    return {"data": {"names": ["a", "b"], "ndarray": [[1, 2]] * rows}, "meta": {"puid": "p"}}


@pytest.mark.parametrize(
    "message",
    [
        large(),
        {"data": {"tensor": {"shape": [300, 2], "values": [1] * 600}}},
        {"meta": {"puid": "p", "tags": {}}, "data": {"ndarray": [[5.0, 2]] * 300}},
    ],
)
@pytest.mark.parametrize("model", [user_class("predict"), graph(x=ROWS), graph(x=spec("int64", None, 2))])
def test_numbers_go_the_fast_way(
    message: dict[str, Any], model: ModelMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large body of plain numbers never reaches the exact parser."""
    monkeypatch.setattr("adapters.seldon.bodies.parse", None)
    assert request(json.dumps(message), model).inputs


@pytest.mark.parametrize(
    "message",
    [
        {"data": {"ndarray": [[1, 2]] * 300 + [[1, None]]}},
        {"data": {"ndarray": [[1, 2]] * 300 + [[1]]}},
        {"data": {"ndarray": [[1, 2]] * 300 + [[1, [2]]]}},
        {"data": {"ndarray": [[1, 1 << 63]] * 300}},
        {"data": {"ndarray": [[1, 2]] * 300}, "meta": {"tags": {"t": [1]}}},
        {"data": {"ndarray": [[1, 2]] * 300}, "meta": {"tags": []}},
        {"data": {"ndarray": [[1, 2]] * 300}, "meta": None},
        {"data": {"ndarray": [[1, 2]] * 3}, "meta": 5},
        {"data": {"ndarray": [[1, 2]] * 3}, "meta": {"tags": "t"}},
        {"data": {"ndarray": [[1, 2]] * 300, "names": ["[", 5]}},
        {"data": {"ndarray": [[1, 2]] * 300, "names": None}},
        {"data": {"ndarray": [[1, 2]] * 300, "tensor": {"shape": [1], "values": [1]}}},
        {"data": {"tensor": {"shape": "x", "values": [1] * 900}}},
        {"data": {"tensor": {"values": [1] * 900}}},
        {"data": {"ndarray": [[1, 2]] * 300}, "strData": "x"},
        {"data": [1] * 900},
        [1] * 900,
    ],
)
def test_everything_else_goes_the_exact_way(message: Any) -> None:
    """What is not a rectangle of plain numbers with a simple meta is left to the exact parser."""
    assert fast.read_numbers(json.dumps(message).encode(), DecodeLimits(), None) is None


def test_duplicate_keys_go_the_exact_way() -> None:
    """The last one counts, which only the exact parser knows."""
    body = '{"data": {"ndarray": [1]}, "data": {"ndarray": [2]}}'
    assert fast.read_numbers(body.encode(), DecodeLimits(), None) is None
    assert x(body) == [2]


@pytest.mark.parametrize("elements", [599, 600, 601])
def test_fast_way_is_bounded(elements: int) -> None:
    """Also there, a body of more values than the limit is refused."""
    message = {"data": {"ndarray": [1] * 602}}
    with pytest.raises(BodyTooLarge):
        fast.read_numbers(json.dumps(message).encode(), DecodeLimits(elements=elements), None)


def test_large_files_go_their_own_way() -> None:
    """A body of bytes is not looked at for numbers."""
    assert x(b"\0" * 2000, headers={"Content-Type": "image/png"}) == b"\0" * 2000


def test_both_ways_agree() -> None:
    """The same message makes the same request, whichever way it takes."""
    for message in (large(), {"data": {"tensor": {"shape": [-1, 2], "values": [1, 2.5] * 300}}}):
        quick = fast.read_numbers(json.dumps(message).encode(), DecodeLimits(), None)
        assert quick is not None
        slow = request(json.dumps({**message, "unknown": 1}), user_class("predict"))
        _same(quick.array, slow.inputs["X"])
        assert quick.payload.names == slow.parameters["names"]
        assert quick.payload.meta == slow.parameters["meta"]


def _same(one: Tensor, other: Tensor) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    np.testing.assert_array_equal(one, other)
