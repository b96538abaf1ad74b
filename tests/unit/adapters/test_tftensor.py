"""TensorProto JSON without TensorFlow: every dtype, every spelling, and every fault."""

from typing import Any

import numpy as np
import pytest

from adapters._tftensor import decode_tftensor, encode_tftensor
from gateway.errors import BodyTooLarge, InferenceFailed, InvalidTensor

MOST = 1000


def proto(dtype: Any, sizes: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A TensorProto of that shape."""
    shape = {} if sizes is None else {"tensorShape": {"dim": [{"size": size} for size in sizes]}}
    return {"dtype": dtype, **shape, **fields}


@pytest.mark.parametrize(
    ("given", "dtype", "values"),
    [
        (proto("DT_FLOAT", ["2"], floatVal=[1.5, "NaN"]), "float32", [1.5, float("nan")]),
        (proto("DT_DOUBLE", ["1"], doubleVal=[0.1]), "float64", [0.1]),
        (proto("DT_INT32", ["2", "1"], intVal=[1, -2]), "int32", [[1], [-2]]),
        (proto("DT_UINT8", [2], intVal=[0, 255]), "uint8", [0, 255]),
        (proto("DT_INT8", [1], intVal=[-128]), "int8", [-128]),
        (proto("DT_INT16", [1], intVal=[-32768]), "int16", [-32768]),
        (proto("DT_UINT16", [1], intVal=[65535]), "uint16", [65535]),
        (proto("DT_INT64", ["1"], int64Val=["-9223372036854775808"]), "int64", [-(1 << 63)]),
        (proto("DT_UINT64", ["1"], uint64Val=["18446744073709551615"]), "uint64", [(1 << 64) - 1]),
        (proto("DT_UINT32", ["1"], uint32Val=[4294967295]), "uint32", [(1 << 32) - 1]),
        (proto("DT_BOOL", ["2"], boolVal=[True, False]), "bool", [True, False]),
        (proto("DT_HALF", ["2"], halfVal=[15360, 0]), "float16", [1.0, 0.0]),
        (proto("DT_BFLOAT16", ["1"], halfVal=[16256]), "float32", [1.0]),
        (proto("DT_STRING", ["1"], stringVal=["aGk="]), "object", [b"hi"]),
        # Contents...
        (proto("DT_FLOAT", ["2"], tensorContent="AACAPwAAAEA="), "float32", [1.0, 2.0]),
        (proto("DT_BOOL", ["3"], tensorContent="AQAB"), "bool", [True, False, True]),
        (proto("DT_BFLOAT16", ["1"], tensorContent="gD8="), "float32", [1.0]),
        # Other ways to say the same...
        (proto(1, ["1"], floatVal=[2]), "float32", [2.0]),
        (proto("DT_FLOAT", floatVal=[2]), "float32", 2.0),
        (proto("DT_INT32", ["3"], intVal=[7]), "int32", [7, 7, 7]),
        (proto("DT_INT32", ["2"]), "int32", [0, 0]),
        (proto("DT_STRING", ["2"]), "object", [b"", b""]),
        (proto("DT_INT32", ["2"], intVal=[1.0, 2]), "int32", [1, 2]),
        ({"dtype": "DT_INT32", "tensor_shape": {"dim": [{"size": "1"}]}, "int_val": [3]}, "int32", [3]),
        (proto("DT_INT32", [], intVal=3), "int32", 3),
        (proto("DT_INT32", ["0"]), "int32", []),
    ],
)
def test_tensor_is_read(given: dict[str, Any], dtype: str, values: Any) -> None:
    """Dtype and values are what TensorFlow would make of it."""
    tensor = decode_tftensor(given, MOST)
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor, np.array(values, dtype))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "no object"),
        ({}, "dtype .None"),
        (proto("DT_COMPLEX64"), "DT_COMPLEX64"),
        (proto(["DT_FLOAT"]), "dtype"),
        (proto("DT_FLOAT", ["-1"]), "no size"),
        (proto("DT_FLOAT", ["x"]), "no size"),
        (proto("DT_FLOAT", [True]), "no size"),
        ({"dtype": "DT_FLOAT", "tensorShape": {"dim": 5}}, "no shape"),
        ({"dtype": "DT_FLOAT", "tensorShape": {"dim": [5]}}, "no size"),
        (proto("DT_FLOAT", ["0", "2147483647", "2147483647", "2147483647"]), "too large"),
        (proto("DT_FLOAT", ["1"], floatVal=[1, 2]), "2 values"),
        (proto("DT_FLOAT", ["1"], floatVal=[None]), "no number"),
        (proto("DT_FLOAT", ["1"], floatVal=["x"]), "no number"),
        (proto("DT_FLOAT", ["2"], tensorContent="AACAPw=="), "has 4 bytes"),
        (proto("DT_FLOAT", ["1"], tensorContent="?"), "no base64"),
        (proto("DT_FLOAT", ["1"], tensorContent=5), "no base64"),
        (proto("DT_STRING", ["1"], tensorContent="aGk="), "stringVal"),
        (proto("DT_STRING", ["1"], stringVal=["?"]), "no base64"),
        (proto("DT_UINT8", ["1"], intVal=[256]), "no uint8"),
        (proto("DT_INT32", ["1"], intVal=[1.5]), "no int32"),
        (proto("DT_INT64", ["1"], int64Val=["1e3"]), "no int64"),
        (proto("DT_BOOL", ["1"], boolVal=[1]), "something else"),
        (proto("DT_HALF", ["1"], halfVal=[70000]), "no uint16"),
    ],
)
def test_fault_is_told(given: Any, text: str) -> None:
    """What is no tensor is refused, with the reason."""
    with pytest.raises(InvalidTensor, match=text):
        decode_tftensor(given, MOST)


def test_size_is_bounded() -> None:
    """One value cannot be made into a huge tensor."""
    with pytest.raises(BodyTooLarge):
        decode_tftensor(proto("DT_FLOAT", ["1001"], floatVal=[1]), MOST)


@pytest.mark.parametrize(
    ("dtype", "field", "value", "most"),
    [("DT_FLOAT", "floatVal", 1, 1 << 20), ("DT_STRING", "stringVal", "QQ==", 1 << 16)],
)
def test_short_lists_are_filled_up_to_a_bound(dtype: str, field: str, value: object, most: int) -> None:
    """A list that goes on with its last value does so a while, not for a gigabyte; a whole one has no such bound."""
    given = {field: [value]}
    assert decode_tftensor(proto(dtype, [str(most)], **given), 1 << 24).size == most
    with pytest.raises(BodyTooLarge, match=f"{field} has 1 values for {most + 1}; at most {most} are filled up"):
        decode_tftensor(proto(dtype, [str(most + 1)], **given), 1 << 24)
    whole = {field: [value] * (most + 1)}
    assert decode_tftensor(proto(dtype, [str(most + 1)], **whole), 1 << 24).size == most + 1


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
@pytest.mark.parametrize("shape", [(), (1,), (2, 2), (0, 3), (1, 1)])
def test_written_tensor_reads_back(dtype: str, shape: tuple[int, ...]) -> None:
    """Every numeric dtype comes back as it was, whether it was written as content or as values."""
    tensor = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    back = decode_tftensor(encode_tftensor(tensor), MOST)
    assert (back.dtype, back.shape, back.tobytes()) == (tensor.dtype, tensor.shape, tensor.tobytes())


@pytest.mark.parametrize(("value", "text"), [(np.nan, "NaN"), (np.inf, "Infinity"), (-np.inf, "-Infinity")])
def test_single_non_finite_value_is_named(value: float, text: str) -> None:
    """JSON has no word for it, so protobuf's is used."""
    assert encode_tftensor(np.array([value]))["doubleVal"] == [text]


def test_what_tensorflow_lacks_is_refused() -> None:
    """A dtype without a name is the model's fault."""
    with pytest.raises(InferenceFailed):
        encode_tftensor(np.array([1 + 1j]))
