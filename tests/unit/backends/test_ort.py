"""Requests to the ort backend: what goes in, what comes out and what is refused before ONNX Runtime sees it."""

import asyncio
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import floats, identity, lookup, model, node, value, weight
from served import Load

from backends import ort
from gateway.errors import InferenceFailed, InvalidTensor, SignatureNotFound
from gateway.types import InferenceRequest

DTYPES = ["bool", "float16", "float32", "float64", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64))]


def two_inputs(dims: Any = ("N",)) -> onnx.ModelProto:
    """`sum = a + b`, `product = a * b`."""
    return model(
        [node("Add", ["a", "b"], ["sum"]), node("Mul", ["a", "b"], ["product"])],
        [value("a", "float32", dims), value("b", "float32", dims)],
        [value("sum", "float32", dims), value("product", "float32", dims)],
    )


# Values...


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (0,)])
def test_every_native_dtype_passes(load: Load, dtype: str, shape: tuple[int, ...]) -> None:
    """An array of each dtype comes back the same, an empty one too."""
    array = np.ones(shape, dtype)
    answer = load(identity(dtype)).infer({"x": array})["y"]
    assert (array.dtype, array.shape, array.tolist()) == (answer.dtype, answer.shape, answer.tolist())


@pytest.mark.parametrize(("dims", "shapes"), [([], [()]), (None, [(), (2,), (2, 0, 3)]), (["N", None], [(2, 3)])])
def test_ranks(load: Load, dims: Any, shapes: list[tuple[int, ...]]) -> None:
    """Rank 0 is told from unknown rank, which takes any; free dimensions take any size."""
    served = load(identity(dims=dims))
    declared = None if dims is None else (None,) * len(dims)
    assert declared == served.backend.metadata.signatures["serving_default"].inputs["x"].shape
    for shape in shapes:
        assert shape == served.infer({"x": floats(*shape)})["y"].shape


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", "float8e5m2"])
def test_dtypes_that_numpy_lacks_travel_as_float32(load: Load, dtype: str) -> None:
    """The declared name stays, the arrays are float32, and values that the dtype lacks are rounded to it."""
    served = load(identity(dtype))
    signature = served.backend.metadata.signatures["serving_default"]
    assert dtype == signature.inputs["x"].dtype == signature.outputs["y"].dtype
    answer = served.infer({"x": np.array([1.5, -0.25, 1.0001], np.float32)})["y"]
    assert np.float32 == answer.dtype
    assert answer.tolist() == [1.5, -0.25, 1.0]


def test_a_carried_dtype_in_a_subgraph(load: Load) -> None:
    """A bfloat16 input that only the branches of an If read, and a name that is taken, are rewritten rightly."""
    negate = [
        node("Cast", ["x"], ["wide"], to=onnx.TensorProto.FLOAT),
        node("Neg", ["wide"], ["negative"]),
        node("Cast", ["negative"], ["a"], to=onnx.TensorProto.BFLOAT16),
    ]
    then = onnx.helper.make_graph(negate, "then", [], [value("a", "bfloat16")])
    other = onnx.helper.make_graph(
        [node("Identity", ["x"], ["x__float32"])], "else", [], [value("x__float32", "bfloat16")]
    )
    served = load(
        model(
            [node("If", ["flag"], ["y"], then_branch=then, else_branch=other)],
            [value("x", "bfloat16"), value("flag", "bool", [])],
            [value("y", "bfloat16")],
        )
    )
    for flag, expected in ((True, [-2.0]), (False, [2.0])):
        assert expected == served.infer({"x": np.array([2], np.float32), "flag": np.array(flag)})["y"].tolist()


def test_outputs_keep_the_graphs_order_and_can_be_chosen(load: Load) -> None:
    """All outputs come in the graph's order, wanted ones alone and in the same order."""
    served = load(two_inputs())
    inputs = {"b": floats(2), "a": floats(2)}
    assert list(served.infer(inputs)) == ["sum", "product"]
    assert list(served.infer(inputs, outputs=("product", "sum"))) == ["sum", "product"]
    answer = served.infer(inputs, outputs=("product",))
    assert {name: array.tolist() for name, array in answer.items()} == {"product": [0.0, 1.0]}


def test_a_model_without_inputs(load: Load) -> None:
    """A graph of constants answers an empty request."""
    served = load(model([node("Identity", ["w"], ["y"])], [], [value("y", "float32", [2])], [weight("w", floats(2))]))
    assert served.infer({})["y"].tolist() == [0.0, 1.0]


def test_initializers_listed_as_inputs_are_weights(load: Load) -> None:
    """What IR 3 lists as an input although it has a value is not asked of anyone."""
    served = load(
        model(
            [node("Add", ["x", "w"], ["y"])],
            [value("x", "float32"), value("w", "float32", [2])],
            [value("y", "float32")],
            [weight("w", floats(2))],
            opset=8,
            ir_version=3,
        )
    )
    assert list(served.backend.metadata.signatures["serving_default"].inputs) == ["x"]
    assert served.infer({"x": np.ones(2, np.float32)})["y"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "array",
    [
        floats(4, 3).T,
        floats(3, 8)[:, ::2],
        floats(3, 4).astype(">f4"),
        np.frombuffer(b"\0" + floats(3, 4).tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4),
    ],
    ids=["fortran", "strided", "byte-swapped", "unaligned"],
)
def test_arrays_that_do_not_lie_as_they_should(load: Load, array: np.ndarray) -> None:
    """Holes, foreign byte order and odd addresses do not reach the runtime; the numbers do."""
    assert array.tolist() == load(identity(dims=["N", 4])).infer({"x": array})["y"].tolist()


def test_read_only_arrays_pass(load: Load) -> None:
    """An array over a request's bytes is good enough."""
    array = np.frombuffer(floats(3).tobytes(), np.float32)
    assert array.tolist() == load(identity()).infer({"x": array})["y"].tolist()


# Refusals...


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (floats(2, 4).astype(np.float64), 'input "x" is float64 of shape [2,4]'),
        (floats(2, 4).astype(np.int32), 'input "x" is int32 of shape [2,4]'),
        (np.array([["a"] * 4], object), 'input "x" is string of shape [1,4]'),
        (floats(4), 'input "x" is float32 of shape [4]'),
        (floats(2, 4, 1), 'input "x" is float32 of shape [2,4,1]'),
        (floats(2, 3), 'input "x" is float32 of shape [2,3]'),
    ],
)
def test_a_tensor_that_does_not_fit(load: Load, array: np.ndarray, said: str) -> None:
    """The text names the input, what was sent and what is taken."""
    with pytest.raises(InvalidTensor) as caught:
        load(identity(dims=["N", 4])).infer({"x": array})
    hint = "" if array.ndim == 2 else "; a batch of one has shape [1,4]"
    assert f"{said}, but the model takes float32 of shape [-1,4]{hint}" == str(caught.value)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (identity("bfloat16", None), "bfloat16 (as float32) of any shape"),
        (identity("string", []), "string of shape []"),
    ],
)
def test_what_the_model_takes(load: Load, model: onnx.ModelProto, said: str) -> None:
    """Carried dtypes, unknown ranks and scalars are described as such."""
    with pytest.raises(InvalidTensor) as caught:
        load(model).infer({"x": np.zeros((1, 1), np.int8)})
    assert f'input "x" is int8 of shape [1,1], but the model takes {said}' == str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, 'missing "a", "b"'),
        ({"a": floats(1)}, 'missing "b"'),
        ({"a": floats(1), "c": floats(1)}, 'missing "b" and unknown "c"'),
        ({"a": floats(1), "b": floats(1), "c": floats(1)}, 'unknown "c"'),
    ],
)
def test_wrong_names(load: Load, inputs: dict[str, np.ndarray], said: str) -> None:
    """Missing and unknown inputs are named, with those that there are."""
    with pytest.raises(InvalidTensor) as caught:
        load(two_inputs()).infer(inputs)
    assert f'inputs: {said}; the signature takes "a", "b"' == str(caught.value)


def test_an_unknown_output(load: Load) -> None:
    """A wanted output that does not exist is the caller's mistake."""
    with pytest.raises(InvalidTensor, match=r'^there is no output "z"; the signature gives "y"$'):
        load(identity()).infer({"x": floats(1)}, outputs=("z",))


def test_an_unknown_signature(load: Load) -> None:
    """It is told what there is."""
    with pytest.raises(SignatureNotFound) as caught:
        load(identity()).infer({"x": floats(1)}, signature="other")
    assert str(caught.value) == "there is no signature 'other'; there are: serving_default"
    assert caught.value.signature == "other"


def test_a_dimension_that_must_be_shared(load: Load) -> None:
    """Sizes that differ although the model names them alike are the caller's mistake; broadcasting stays allowed."""
    served = load(two_inputs())
    with pytest.raises(InvalidTensor) as caught:
        served.infer({"a": floats(2), "b": floats(3)})
    assert str(caught.value) == 'dimension \'N\' must be the same in all inputs, but "a" has 2, "b" has 3'
    assert served.infer({"a": floats(1), "b": floats(3)})["product"].tolist() == [0.0, 0.0, 0.0]


def test_an_index_out_of_bounds(load: Load) -> None:
    """What ONNX Runtime calls an invalid argument is the caller's mistake."""
    served = load(lookup(4))
    with pytest.raises(InvalidTensor) as caught:
        served.infer({"x": np.array([9])})
    assert str(caught.value).startswith("Gather: indices element out of data bounds, idx=9")


def reshape(size: int) -> onnx.ModelProto:
    """A vector of two values, declared with any number of them, as a matrix of `size` columns."""
    return model(
        [node("Reshape", ["x", "to"], ["y"])],
        [value("x", "float32")],
        [value("y", "float32", [None, None])],
        [weight("to", np.array([1, size]))],
    )


def test_a_shape_that_a_kernel_refuses(load: Load) -> None:
    """A kernel of a model that works complains of this request, and tells it without paths."""
    with pytest.raises(InvalidTensor) as caught:
        load(reshape(1)).infer({"x": floats(3)})
    assert str(caught.value).startswith(
        "the model cannot take these inputs: Reshape: The input tensor cannot be reshaped"
    )
    assert "/" not in str(caught.value)


def test_a_kernel_that_has_refused_the_zeros(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """A shape is the request's mistake from the first one on; the log has ONNX Runtime's text, for it may be wrong."""
    with pytest.raises(InvalidTensor, match=r"^the model cannot take these inputs: Reshape: The input tensor"):
        load(reshape(2)).infer({"x": floats(3)})
    assert any("demo version 1" in message and "reshape_helper.h" in message for message in caplog.messages)


def test_a_model_that_has_never_answered(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """Its other failures are its own as long as that is so, and errors in the log."""
    built = model([node("Cast", ["x"], ["y"], to=1)], [value("x", "string")], [value("y", "float32")])
    served = load(built)
    with pytest.raises(InferenceFailed, match=r"^the model failed: "):
        served.infer({"x": np.array(["one"], object)})
    assert [record.levelname for record in caplog.records if "a run failed" in record.message] == ["ERROR"]
    assert served.infer({"x": np.array(["1"], object)})["y"].tolist() == [1.0]
    with pytest.raises(InvalidTensor, match=r"^the model cannot take these inputs: "):
        served.infer({"x": np.array(["one"], object)})


# The rest of the protocol...


def test_a_stream_is_the_one_answer(load: Load) -> None:
    """A model that cannot stream answers once."""
    served = load(identity())

    async def parts() -> list[Any]:
        return [part async for part in served.backend.stream(InferenceRequest({"x": floats(2)}))]

    assert [part.outputs["y"].tolist() for part in served.runner.run(parts())] == [[0.0, 1.0]]


@pytest.mark.parametrize("inline_elements", [-1, 1 << 30], ids=["thread", "inline"])
def test_requests_at_once_do_not_mix(load: Load, inline_elements: int) -> None:
    """On the loop and on the thread alike, each of many requests gets its own answer."""
    served = load(two_inputs())
    served.backend._pace.inline_elements = inline_elements

    async def all_at_once() -> list[float]:
        arrays = [np.full(3, number, np.float32) for number in range(50)]
        responses = await asyncio.gather(*(served.respond({"a": array, "b": array}) for array in arrays))
        return [float(response.outputs["sum"][2]) for response in responses]

    assert [2.0 * number for number in range(50)] == served.runner.run(all_at_once())


@pytest.mark.parametrize("config", [ort.Config(threads=2), ort.Config(optimization="off")])
def test_options_do_not_change_answers(load: Load, config: ort.Config) -> None:
    """More threads and less optimization give the same."""
    assert load(two_inputs(), config).infer({"a": floats(2), "b": floats(2)})["sum"].tolist() == [0.0, 2.0]
