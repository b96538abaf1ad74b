"""TensorFlow's TensorProto in its JSON form, without TensorFlow.

Source: tensorflow/core/framework/tensor.proto and types.proto; tensor_util.MakeNdarray for what short value lists mean.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pybase64
from msgspec import Struct

from adapters._excerpt import excerpt
from gateway.errors import BodyTooLarge, InferenceFailed, InvalidTensor
from gateway.types import Tensor

_RANK = 64
_MOST_FILLED, _MOST_FILLED_TEXTS = 1 << 20, 1 << 16
"""Elements that a list which is too short is filled up to. PERF: else a hundred bytes make a gigabyte of texts."""


class _Type(Struct, frozen=True):
    name: str
    number: int
    dtype: np.dtype
    """Of one item of `tensorContent`."""
    field: str


def _type(name: str, number: int, dtype: str, field: str) -> _Type:
    return _Type(name, number, np.dtype(dtype), field)


_TYPES = (
    _type("DT_FLOAT", 1, "<f4", "floatVal"),
    _type("DT_DOUBLE", 2, "<f8", "doubleVal"),
    _type("DT_INT32", 3, "<i4", "intVal"),
    _type("DT_UINT8", 4, "u1", "intVal"),
    _type("DT_INT16", 5, "<i2", "intVal"),
    _type("DT_INT8", 6, "i1", "intVal"),
    _type("DT_STRING", 7, "O", "stringVal"),
    _type("DT_INT64", 9, "<i8", "int64Val"),
    _type("DT_BOOL", 10, "?", "boolVal"),
    _type("DT_BFLOAT16", 14, "<u2", "halfVal"),
    _type("DT_UINT16", 17, "<u2", "intVal"),
    _type("DT_HALF", 19, "<f2", "halfVal"),
    _type("DT_UINT32", 22, "<u4", "uint32Val"),
    _type("DT_UINT64", 23, "<u8", "uint64Val"),
)
_BY_NAME: dict[object, _Type] = {key: one for one in _TYPES for key in (one.name, one.number)}
_BY_DTYPE = {one.dtype.newbyteorder("="): one for one in _TYPES if one.name not in ("DT_STRING", "DT_BFLOAT16")}
_SNAKE = {
    "tensorShape": "tensor_shape",
    "tensorContent": "tensor_content",
    "floatVal": "float_val",
    "doubleVal": "double_val",
    "intVal": "int_val",
    "int64Val": "int64_val",
    "stringVal": "string_val",
    "boolVal": "bool_val",
    "halfVal": "half_val",
    "uint32Val": "uint32_val",
    "uint64Val": "uint64_val",
}


def decode_tftensor(proto: Any, elements: int) -> Tensor:
    """The tensor; strings are items of `bytes`. Raises InvalidTensor, and BodyTooLarge above that many elements."""
    if not isinstance(proto, dict):
        raise InvalidTensor("tftensor is no object")
    kind = _BY_NAME.get(proto.get("dtype")) if isinstance(proto.get("dtype"), str | int) else None
    if kind is None:
        known = ", ".join(one.name for one in _TYPES)
        raise InvalidTensor(f"tftensor has the dtype {excerpt(proto.get('dtype'))}; there are: {known}")
    shape = _shape(_get(proto, "tensorShape"))
    size = prod(shape)
    if size > elements:
        raise BodyTooLarge(f"the tftensor has {size} elements; the limit is {elements}")
    content = _get(proto, "tensorContent")
    flat = _content(content, kind, size) if content else _values(_get(proto, kind.field), kind, size)
    if kind.name == "DT_BFLOAT16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    try:
        return flat.reshape(shape)
    except ValueError:  # no elements, but dimensions beyond numpy's
        raise InvalidTensor("tftensor: tensorShape is too large") from None


def _get(proto: Mapping[str, Any], field: str) -> Any:
    """SPEC: protobuf's JSON readers take either spelling."""
    value = proto.get(field)
    return proto.get(_SNAKE[field]) if value is None else value


def _shape(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    dims = value.get("dim", []) if isinstance(value, dict) else None
    if not isinstance(dims, list) or len(dims) > _RANK:
        raise InvalidTensor("tftensor: tensorShape is no shape")
    return tuple(_size(dim.get("size", 0) if isinstance(dim, dict) else None) for dim in dims)


def _size(value: Any) -> int:
    number = _integer(value)
    if number is None or not 0 <= number < 1 << 31:
        raise InvalidTensor(f"tftensor: {excerpt(value)} is no size of a dimension")
    return number


def _integer(value: Any) -> int | None:
    """SPEC: 64-bit integers are strings in protobuf's JSON, and may be numbers."""
    if isinstance(value, str) and len(value) <= 20:
        try:
            return int(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _content(content: Any, kind: _Type, size: int) -> Tensor:
    if kind.name == "DT_STRING":
        raise InvalidTensor("tftensor: strings come in stringVal, not in tensorContent")
    data = _base64(content, "tensorContent")
    if len(data) != size * kind.dtype.itemsize:
        raise InvalidTensor(
            f"tftensor: tensorContent has {len(data)} bytes; the shape takes {size * kind.dtype.itemsize}"
        )
    if kind.name == "DT_BOOL":
        return np.frombuffer(data, np.uint8).astype(bool)
    return np.frombuffer(data, kind.dtype).astype(kind.dtype.newbyteorder("="))


def _base64(text: Any, field: str) -> bytes:
    try:
        return pybase64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise InvalidTensor(f"tftensor: {field} is no base64") from None


def _values(values: Any, kind: _Type, size: int) -> Tensor:
    """SPEC: a list that is too short goes on with its last value, an empty one with zeros."""
    given = [] if values is None else values if isinstance(values, list) else [values]
    if len(given) > size:
        raise InvalidTensor(f"tftensor: {kind.field} has {len(given)} values; the shape takes {size}")
    most = _MOST_FILLED_TEXTS if kind.field == "stringVal" else _MOST_FILLED
    if len(given) < size and size > most:
        raise BodyTooLarge(f"tftensor: {kind.field} has {len(given)} values for {size}; at most {most} are filled up")
    flat = np.empty(size, kind.dtype.newbyteorder("="))
    flat[: len(given)] = _parsed(given, kind)
    if len(given) < size:
        flat[len(given) :] = flat[len(given) - 1] if given else (b"" if kind.field == "stringVal" else 0)
    return flat


def _parsed(given: list[Any], kind: _Type) -> Tensor:
    match kind.field:
        case "stringVal":
            texts = np.empty(len(given), object)
            texts[:] = [_base64(text, "stringVal") for text in given]
            return texts
        case "boolVal":
            if set(map(type, given)) <= {bool}:
                return np.array(given, bool)
        case "halfVal":
            return _whole(given, kind, np.dtype(np.uint16)).view(kind.dtype)
        case "floatVal" | "doubleVal":
            return _floats(given, kind)
        case _:
            return _whole(given, kind, kind.dtype)
    raise InvalidTensor(f"tftensor: {kind.field} holds something else")


def _floats(given: list[Any], kind: _Type) -> Tensor:
    if set(map(type, given)) <= {int, float, str}:
        try:
            with np.errstate(over="ignore"):
                return np.array([float(value) for value in given]).astype(kind.dtype)
        except (ValueError, OverflowError):
            pass
    raise InvalidTensor(f"tftensor: {kind.field} holds something that is no number")


def _whole(given: list[Any], kind: _Type, dtype: np.dtype) -> Tensor:
    numbers = [_integer(value) for value in given]
    info = np.iinfo(dtype)
    for value, number in zip(given, numbers, strict=True):
        if number is None or not info.min <= number <= info.max:
            raise InvalidTensor(f"tftensor: {excerpt(value)} in {kind.field} is no {info.dtype}")
    return np.array(numbers, dtype)


def encode_tftensor(tensor: Tensor) -> dict[str, Any]:
    """A numeric tensor as TensorProto JSON. Raises InferenceFailed for a dtype that TensorFlow has not."""
    kind = _BY_DTYPE.get(tensor.dtype)
    if kind is None:
        raise InferenceFailed(f"an output of dtype {tensor.dtype} cannot be written as a tftensor")
    proto: dict[str, Any] = {"dtype": kind.name, "tensorShape": {}}
    if tensor.ndim:
        proto["tensorShape"] = {"dim": [{"size": str(size)} for size in tensor.shape]}
    if tensor.size > 1:
        proto["tensorContent"] = pybase64.b64encode(tensor.astype(kind.dtype).tobytes()).decode("ascii")
    elif tensor.size:
        proto[kind.field] = [_value(tensor.reshape(1), kind)]
    return proto


def _value(single: Tensor, kind: _Type) -> Any:
    if kind.field == "halfVal":
        return int(single.view(np.uint16)[0])
    value = single[0].item()
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return str(value) if kind.field in ("int64Val", "uint64Val") else value
