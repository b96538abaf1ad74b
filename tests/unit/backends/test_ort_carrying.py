"""What a numpy array cannot be as it is: strings, sequences, maps and optionals."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import floats, identity, map_type, model, node, sequence_type, tensor_type, value
from served import Load

from gateway.errors import InferenceFailed, InvalidTensor

# Strings...


def test_strings(load: Load) -> None:
    """Text of any script passes, and bytes that are UTF-8 pass as text."""
    texts = np.array([["", "a\0b", "漢字"], [b"bytes", "ä".encode(), np.str_("numpy")]], object)
    answer = load(identity("string", [None, None])).infer({"x": texts})["y"]
    assert answer.tolist() == [["", "a\0b", "漢字"], ["bytes", "ä", "numpy"]]
    assert {str} == {type(item) for item in answer.ravel()}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (b"\xff", "is binary and not UTF-8, but the model takes text"),
        ("\ud800", "is not valid Unicode text"),
        (3, "is int, not a string"),
        (None, "is NoneType, not a string"),
        ([], "is list, not a string"),
    ],
)
def test_strings_that_are_none(load: Load, item: object, said: str) -> None:
    """What ONNX Runtime would silently turn into some other text is refused, with the input and the item."""
    array = np.empty(2, object)
    array[:] = ["fine", item]
    with pytest.raises(InvalidTensor) as caught:
        load(identity("string")).infer({"x": array})
    assert f'input "x": item 1 {said}' == str(caught.value)


def test_an_output_that_is_no_text(load: Load) -> None:
    """A model whose string output is not UTF-8 fails, and the next request is fine."""
    raw = onnx.helper.make_tensor("raw", onnx.TensorProto.STRING, [2], [b"fine", b"\xff\xfe"])
    served = load(model([node("Gather", ["raw", "x"], ["y"])], [value("x", "int64")], [value("y", "string")], [raw]))
    with pytest.raises(InferenceFailed, match="a string that is not UTF-8"):
        served.infer({"x": np.array([1])})
    assert served.infer({"x": np.array([0])})["y"].tolist() == ["fine"]


# Sequences, maps, optionals...


def zip_map(labels: list[Any]) -> onnx.ModelProto:
    """Scores become maps from label to score, as converters of classic models make them."""
    texts = isinstance(labels[0], str)
    key = onnx.TensorProto.STRING if texts else onnx.TensorProto.INT64
    attributes = {"classlabels_strings" if texts else "classlabels_int64s": labels}
    return model(
        [node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **attributes)],
        [value("x", "float32", [None, len(labels)])],
        [value("y", sequence_type(map_type(tensor_type("float32", []), key)))],
    )


@pytest.mark.parametrize(("labels", "expected"), [([0, 1, 2], [[0, 1, 2], [3, 4, 5]]), (["b", "a"], [[1, 0], [3, 2]])])
def test_maps_become_a_matrix(load: Load, labels: list[Any], expected: list[list[float]]) -> None:
    """A sequence of maps is [rows, keys], the keys in their order."""
    served = load(zip_map(labels))
    assert served.backend.metadata.signatures["serving_default"].outputs["y"].shape == (None, None)
    answer = served.infer({"x": floats(2, len(labels))})["y"]
    assert (np.float32, expected) == (answer.dtype, answer.tolist())
    assert served.infer({"x": floats(0, len(labels))})["y"].shape == (0, 0)


def sequence_identity(dims: Any = ("K",)) -> onnx.ModelProto:
    """A sequence, given back."""
    kind = sequence_type(tensor_type("float32", dims))
    return model([node("Identity", ["x"], ["y"])], [value("x", kind)], [value("y", kind)])


@pytest.mark.parametrize("shape", [(2, 3), (3, 1), (0, 5)])
def test_sequences_of_equal_shapes_are_one_tensor(load: Load, shape: tuple[int, ...]) -> None:
    """A sequence has one more leading dimension, on both ways."""
    served = load(sequence_identity())
    signature = served.backend.metadata.signatures["serving_default"]
    assert (None, None) == signature.inputs["x"].shape == signature.outputs["y"].shape
    answer = served.infer({"x": floats(*shape)})["y"]
    assert shape[0] == len(answer)
    assert floats(*shape).tolist() == answer.tolist()


def test_a_sequence_of_scalars(load: Load) -> None:
    """A vector becomes a sequence of scalars and is one again."""
    assert load(sequence_identity([])).infer({"x": floats(2)})["y"].tolist() == [0.0, 1.0]


def test_a_scalar_is_no_sequence(load: Load) -> None:
    """Where even the rank is unknown, a sequence needs its own dimension."""
    with pytest.raises(InvalidTensor, match='input "x" is float32 of shape'):
        load(sequence_identity(None)).infer({"x": floats()})


def test_a_ragged_sequence(load: Load) -> None:
    """Tensors of different shapes cannot be one tensor, and the text says which output and which shapes."""
    served = load(
        model(
            [node("SplitToSequence", ["x", "sizes"], ["y"])],
            [value("x", "float32"), value("sizes", "int64")],
            [value("y", sequence_type(tensor_type("float32", ["K"])))],
        )
    )
    assert served.infer({"x": floats(4), "sizes": np.array([2, 2])})["y"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    with pytest.raises(InferenceFailed, match=r'output "y" is a sequence .* such as \[1\] and \[3\]'):
        served.infer({"x": floats(4), "sizes": np.array([1, 3])})


def test_optionals(load: Load) -> None:
    """An optional input may be left out; an optional output that is absent is a clear failure."""
    kind = onnx.helper.make_optional_type_proto(tensor_type("float32", ["N"]))
    served = load(
        model(
            [node("Identity", ["x"], ["y"]), node("OptionalHasElement", ["x"], ["has"])],
            [value("x", kind)],
            [value("y", kind), value("has", "bool", [])],
        )
    )
    assert served.infer({"x": floats(2)})["y"].tolist() == [0.0, 1.0]
    assert {"has": np.array(False)} == served.infer({}, outputs=("has",))
    with pytest.raises(InferenceFailed, match='output "y" is optional, and the model gave nothing for it'):
        served.infer({})
