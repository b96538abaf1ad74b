"""Every form of JSON that SageMaker's clients send becomes the declared tensor, or is refused by its place."""

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from sagemaker_decoding import FOUR, JSON, LIMITS, OTHER, ROW, model, read, refusal, values

from adapters.sagemaker.requests import decode
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody, SignatureNotFound
from gateway.interfaces import DecodeLimits
from gateway.types import ModelMetadata, Signature, TensorSpec


def npz(**arrays: Any) -> bytes:
    """What numpy saves of several."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


# JSON...

SPARSE = {"keys": [0, 3], "shape": [4], "values": [1.5, 23]}
DENSIFIED = [1.5, 0.0, 0.0, 23.0]


@pytest.mark.parametrize(
    ("document", "rows"),
    [
        ({"instances": [{"features": ROW}]}, [ROW]),
        ({"instances": [{"features": ROW}, {"features": OTHER}]}, [ROW, OTHER]),
        ({"instances": [{"features": {"values": ROW}}]}, [ROW]),
        ({"instances": [{"data": {"features": {"values": ROW}}}]}, [ROW]),
        ({"instances": [{"data": {"features": ROW}}]}, [ROW]),
        ({"instances": [{"data": ROW}]}, [ROW]),
        ({"instances": [{"values": ROW}]}, [ROW]),
        ({"instances": [{"data": {"features": SPARSE}}]}, [DENSIFIED]),
        ({"instances": [SPARSE]}, [DENSIFIED]),
        ({"instances": [{"features": {"keys": [3, 0], "shape": [2, 2], "values": [23, 1.5]}}]}, [DENSIFIED]),
        ({"instances": [{"features": {"keys": [], "shape": [4], "values": ROW}}]}, [ROW]),
        ({"instances": [{"features": {"shape": [4]}}]}, [[0.0] * 4]),
        ({"instances": [{"x": ROW}]}, [ROW]),
        ({"instances": [ROW, {"features": OTHER}, {"data": {"features": SPARSE}}]}, [ROW, OTHER, DENSIFIED]),
        ({"instances": [{"id": 1, "configuration": {"k": 2}, "features": ROW}], "configuration": {}}, [ROW]),
        ({"instances": [ROW, OTHER]}, [ROW, OTHER]),
        ({"inputs": [ROW, OTHER]}, [ROW, OTHER]),
        ({"inputs": ROW}, [ROW]),
        ({"inputs": {"x": [ROW, OTHER]}}, [ROW, OTHER]),
        ({"inputs": {"x": ROW}}, [ROW]),
        ({"examples": [{"x": ROW}]}, [ROW]),
        ([ROW, OTHER], [ROW, OTHER]),
        ([{"features": ROW}], [ROW]),
        (ROW, [ROW]),
        ({"features": ROW}, [ROW]),
        ({"instances": [{"features": ["1.5", "16", " 14 ", "23"]}]}, [ROW]),
    ],
    ids=str,
)
def test_json_forms(document: Any, rows: list[list[float]]) -> None:
    """Each of the documented forms, alone and mixed, is the same rows."""
    assert values(document) == rows


def test_missing_values_are_nan() -> None:
    """null, NaN and "NaN" are missing to a float model, infinities are themselves."""
    [row] = values('[[null, NaN, "NaN", -Infinity]]')
    assert np.isnan(row[:3]).all()
    assert row[3] == -np.inf


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_are_exact(dtype: str) -> None:
    """Integers never pass through a float, and whole numbers may be written as one."""
    most = np.iinfo(dtype).max
    spec = TensorSpec("x", dtype, (None, 3))
    assert values(f'[[{most}, 3.0, "7"]]', JSON, spec) == [[most, 3, 7]]
    assert values(f"{most},3,7", "text/csv", spec) == [[most, 3, 7]]
    assert values(f'{{"features":[{most},3,7]}}\n', "application/jsonlines", spec) == [[most, 3, 7]]
    assert values([{"features": {"keys": [0], "shape": [3], "values": [most]}}], JSON, spec) == [[most, 0, 0]]


def test_bools() -> None:
    """true and false, and 0 and 1."""
    assert values([[True, 0], ["false", 1]], JSON, TensorSpec("x", "bool", (None, 2))) == [[True, False], [False, True]]


@pytest.mark.parametrize(
    ("shape", "document", "expected"),
    [
        ((None,), [1, 2, 3], [1, 2, 3]),
        ((None,), {"instances": [[1], [2]]}, [1, 2]),
        ((None,), {"instances": [{"features": [1]}]}, [1]),
        ((3,), [1, 2, 3], [1, 2, 3]),
        ((3,), {"instances": [[1, 2, 3]]}, [1, 2, 3]),
        ((3,), {"instances": [1, 2, 3]}, [1, 2, 3]),
        ((1,), {"instances": [{"features": [5]}]}, [5]),
        ((), 5, 5),
        ((), [5], 5),
        ((None, 2, 2), [[[1, 2], [3, 4]]], [[[1, 2], [3, 4]]]),
        ((None, 2, 2), [[1, 2, 3, 4]], [[[1, 2], [3, 4]]]),
        ((None, 2, 2), [1, 2, 3, 4], [[[1, 2], [3, 4]]]),
        ((None, None, 2), [[1, 2, 3, 4]], [[[1, 2], [3, 4]]]),
        ((None, None, None), [[[1, 2], [3, 4]]], [[[1, 2], [3, 4]]]),
        ((2, 2), {"instances": [[[1, 2], [3, 4]]]}, [[1, 2], [3, 4]]),
        ((1, 2), [[1, 2]], [[1, 2]]),
        (None, [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (None, {"instances": [[[1]]]}, [[[1]]]),
    ],
)
def test_declared_rank_decides(shape: tuple[int | None, ...] | None, document: Any, expected: Any) -> None:
    """What the model declares, and not the body, says what a row is."""
    assert values(document, JSON, TensorSpec("x", "float32", shape)) == expected


def test_several_inputs_by_name() -> None:
    """Instances, or whole columns, under the names of the inputs."""
    specs = (TensorSpec("age", "int64", (None, 1)), TensorSpec("city", "string", (None,)))
    expected = {"age": [[42], [37]], "city": ["Bonn", "Ulm"]}
    rows = [{"age": 42, "city": "Bonn"}, {"age": 37, "city": "Ulm"}]
    forms: list[Any] = [{"instances": rows}, rows, {"inputs": {"age": [42, 37], "city": ["Bonn", "Ulm"]}}]
    forms.append({"instances": [{"data": rows[0]}, {"features": rows[1]}]})
    for document in forms:
        decoded = read(json.dumps(document), JSON, *specs)
        assert {name: tensor.tolist() for name, tensor in decoded.inputs.items()} == expected
    lines = "\n".join(map(json.dumps, rows))
    assert read(lines, "application/jsonlines", *specs).inputs["city"].tolist() == ["Bonn", "Ulm"]
    arrays = read(npz(age=[[42], [37]], city=["Bonn", "Ulm"]), "application/x-npz", *specs)
    assert {name: tensor.tolist() for name, tensor in arrays.inputs.items()} == expected


def test_optional_inputs_may_be_left_out() -> None:
    """An input that no instance has is not made up."""
    specs = (FOUR, TensorSpec("bias", "float32", (None,)))
    assert list(read(json.dumps([{"x": ROW}]), JSON, *specs).inputs) == ["x"]


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ({"inputs": "a text", "parameters": {"n": 3}}, ["a text"]),
        ({"inputs": ["a", "b"]}, ["a", "b"]),
        ({"instances": ["a", "b"]}, ["a", "b"]),
        ({"instances": [{"features": ["a"]}, {"x": "b"}]}, ["a", "b"]),
        ("a text", ["a text"]),
        ({"x": "a"}, ["a"]),
    ],
)
def test_texts(document: Any, texts: list[str]) -> None:
    """Models of text take Hugging Face's bodies and all the others."""
    assert values(json.dumps(document), JSON, TensorSpec("x", "string", (None,))) == texts


def test_what_stands_beside_the_data() -> None:
    """Parameters and the wish for parts are told, and a signature can be named."""
    body = '{"instances": [[1, 2, 3, 4]], "parameters": {"k": 2}, "stream": true, "signature_name": "serving_default"}'
    decoded = read(body)
    assert (decoded.parameters, decoded.stream, decoded.signature) == ({"k": 2}, True, "serving_default")
    with pytest.raises(SignatureNotFound, match="there is no signature 'other'; there are: serving_default"):
        read('{"instances": [[1, 2, 3, 4]], "signature_name": "other"}')


def test_only_signature_is_the_default() -> None:
    """A model whose one signature has another name needs nobody to say it; of several, one must be the default."""
    assert decode(b"[[1,2,3,4]]", JSON, model(FOUR, name="mine"), LIMITS, "auto").signature == "mine"
    two = {name: Signature(name, "predict", {"x": FOUR}, {}) for name in ("a", "b")}
    with pytest.raises(SignatureNotFound, match="there are: a, b"):
        decode(b"[[1,2,3,4]]", JSON, ModelMetadata("m", 1, "none", two), LIMITS, "auto")


def test_documents_back_to_back() -> None:
    """JSON values one after another are all rows, and how many came in each is kept."""
    decoded = read('{"instances": [[1,2,3,4],[5,6,7,8]]}\n{"features": [9,9,9,9]} [[0,0,0,0]]')
    assert (len(decoded.inputs["x"]), decoded.documents) == (4, (2, 1, 1))


def test_base64() -> None:
    """Bytes for strings, vectors of bytes, and encoded images."""
    data = base64.b64encode(b"\x00\x01\xff").decode()
    assert values([{"b64": data}], JSON, TensorSpec("x", "string", (None,))) == [b"\x00\x01\xff"]
    assert values([{"x": {"b64": data}}], JSON, TensorSpec("x", "uint8", (None, 3))) == [[0, 1, 255]]
    image = TensorSpec("x", "float32", (None, 2, 2), "image")
    assert values({"instances": [{"x": {"b64": data}}, {"b64": data}]}, JSON, image) == [b"\x00\x01\xff"] * 2


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"instances": []}, "there are no instances"),
        ({"instances": 5}, "instances must be a list"),
        (None, "row 1: the value for input x is null"),
        ({"instances": [{"features": None}]}, "row 1: the value for input x is null"),
        ({"instances": [ROW, {"other": 1}]}, "row 2: expected features, data or 'x'; there is 'other'"),
        ({"instances": [ROW, {}]}, "row 2: expected features, data or 'x'; there is nothing"),
        ({"instances": [ROW, [1, 2]]}, "row 2: expected 4 values, got 2"),
        ({"instances": [[1, 2]]}, "row 1: expected 4 values, got 2"),
        ({"instances": [ROW, [1, 2, 3, "four"]]}, "row 2, value 4: 'four' is no float32"),
        ({"instances": [[1, 2, 3, True]]}, "row 1, value 4: True is no float32"),
        ({"instances": [[1, 2, 3, {}]]}, "row 1, value 4: a list or an object is no float32"),
        ({"instances": [[1, [2], 3, 4]]}, "row 1: the lists for input x are ragged or nested too deeply"),
        ({"instances": [SPARSE, {"keys": [0], "shape": [5], "values": [1]}]}, "row 2: expected 4 values by its shape"),
        ({"instances": [{"keys": [0, 9], "shape": [4], "values": [1, 2]}]}, "row 1: key 9 is beyond the 4 values"),
        ({"instances": [{"keys": [0, 1], "shape": [4], "values": [1]}]}, "row 1: 2 keys, but 1 values"),
        ({"instances": [{"keys": [0, 0], "shape": [4], "values": [1, 2]}]}, "row 1: a key occurs twice"),
        ({"instances": [{"keys": [0], "values": [1]}]}, "row 1: sparse values need a shape"),
        ({"instances": [{"keys": [-1], "shape": [4], "values": [1]}]}, "row 1: keys must be whole numbers"),
        ({"instances": [{"keys": 0, "shape": [4], "values": [1]}]}, "row 1: keys, shape and values must be lists"),
        ({"instances": [{"shape": [5], "values": ROW}]}, "row 1: expected 4 values by its shape, got 5"),
        ({"instances": [{"keys": [], "values": []}]}, "row 1: there are no values"),
        ({"instances": [{"b64": "AA=="}]}, "row 1: base64 is no float32 [?,4]"),
        ({"inputs": {"x": []}}, "inputs: the column x is empty"),
        ({"inputs": {"x": [ROW], "y": [1]}}, "inputs: there is no input 'y'; there are x"),
    ],
    ids=str,
)
def test_json_is_refused_with_a_place(document: Any, text: str) -> None:
    """What a document has wrong is said with the row, and where there are many values with the value's number."""
    kind, message = refusal(document)
    assert kind in (MalformedBody, InvalidTensor)
    assert message.startswith(text)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "the body is empty"),
        (" \n", "the body is empty"),
        ('{"instances":[', "not JSON: Expecting value at line 1, column 15"),
        ("instances=1", "not JSON: Expecting value at line 1, column 1"),
        (
            '{"instances": [[1,2,3,4],]}',
            "not JSON: Expecting value at line 1, column 26; a comma stands before a closing",
        ),
        (b'{"instances": "\xff"}', "not JSON: it is not UTF-8 at byte 15"),
        ("[" * 2000, "not JSON: nested too deeply"),
        (f"[[{'9' * 400}, 1, 1, 1]]", "not JSON: a number is too long"),
        ("\x1e", "not JSON: "),
    ],
)
def test_text_that_is_no_json(body: str | bytes, text: str) -> None:
    """The reason and the place are in the text, and what people paste from the documentation is recognised."""
    kind, message = refusal(body)
    assert kind is MalformedBody
    assert message.startswith(text)


def test_columns_stand_alone() -> None:
    """Whole columns in one of several documents would be rows of nobody."""
    two = '{"inputs": {"x": [[1,2,3,4]]}} {"inputs": {"x": [[1,2,3,4]]}}'
    assert refusal(two)[1] == "columns of several instances cannot stand in one of several documents"


def test_several_inputs_need_names() -> None:
    """Where a model has several inputs, a bare row, a missing one, and a format without names are refused."""
    specs = (FOUR, TensorSpec("y", "float32", (None,)))
    assert refusal([ROW], JSON, *specs)[1] == "row 1: expected an object with the model's inputs x, y"
    assert refusal([{"x": ROW, "y": 1}, {"x": ROW}], JSON, *specs)[1] == "row 2: the input y is missing"
    assert refusal("1,2,3,4", "text/csv", *specs)[1].startswith(
        "text/csv feeds models with one input, and this one has"
    )
    assert refusal(npz(x=[ROW]), "application/x-npz", *specs)[1] == "the npz file has no array y; there are x"


def test_limits_come_before_memory() -> None:
    """A claimed shape, a flood of values and a flood of lists are refused before anything is built."""
    any_width = TensorSpec("x", "float32", (None, None))
    vast = {"instances": [{"keys": [0], "shape": [2**40], "values": [1]}]}
    assert refusal(vast, JSON, any_width) == (
        BodyTooLarge,
        "1 rows of 1099511627776 values are over the limit of 10000 values",
    )
    assert refusal("[" + "1," * 20_000 + "1]", JSON, any_width)[0] is BodyTooLarge
    assert refusal("[" + "{}" * 3000 + "]", JSON, any_width)[0] is BodyTooLarge


# JSON Lines...


def test_lines() -> None:
    """One form a line, mixed at will; blank lines are nothing; several rows may stand on a line."""
    lines = [
        json.dumps(line) for line in ({"features": ROW}, {"data": {"features": SPARSE}}, OTHER, {"instances": [ROW]})
    ]
    assert values("\n\n".join(lines) + "\n", "application/jsonlines") == [ROW, DENSIFIED, OTHER, ROW]
    assert values("\n".join([json.dumps({"features": ROW})] * 3), "application/x-jsonlines") == [ROW] * 3


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"features":[1,2,3,4]}\n\n{"features":[1,2]}', "line 3: expected 4 values, got 2"),
        ('[1,2,3,4]\n{"x": "a"}', "line 2, value 1: 'a' is no float32"),
        ('{"instances": [[1,2,3,4],[1]]}', "line 1: expected 4 values, got 1"),
        ("[1,2,3,4]\n{oops}", "line 2: not JSON: "),
        ('{"instances": 7}', "line 1: instances must be a list"),
    ],
)
def test_lines_are_named(body: str, text: str) -> None:
    """Errors count lines, blank ones included."""
    assert refusal(body, "application/jsonlines")[1].startswith(text)


def test_a_flood_of_documents_is_refused() -> None:
    """65,536 documents are one body; a body of more costs kilobytes a byte and is told to send instances."""
    assert len(decode(b"[1,2,3,4] " * 65_536, JSON, model(FOUR), DecodeLimits(), "auto").documents) == 65_536
    with pytest.raises(BodyTooLarge, match="more than 65536 JSON documents"):
        decode(b"1 " * 65_537, JSON, model(FOUR), DecodeLimits(), "auto")
