"""Tensors as JSON's values and back, exactly; TF Serving's and the Open Inference Protocol's names of the dtypes.

NaN and infinity are written as Python, TF Serving and Triton write them: NaN, Infinity, -Infinity.
"""

import base64
import binascii
import json
from typing import Any

import msgspec
import numpy as np

from backends.remote.failures import bad_answer
from gateway.errors import InvalidTensor
from gateway.types import FLOAT32_CARRIED, Tensor, TensorSpec

TF_DTYPES = {
    "DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16", "DT_BFLOAT16": "bfloat16",
    "DT_INT8": "int8", "DT_INT16": "int16", "DT_INT32": "int32", "DT_INT64": "int64",
    "DT_UINT8": "uint8", "DT_UINT16": "uint16", "DT_UINT32": "uint32", "DT_UINT64": "uint64",
    "DT_BOOL": "bool", "DT_STRING": "string",
}  # fmt: skip
V2_DTYPES = {
    "FP32": "float32", "FP64": "float64", "FP16": "float16", "BF16": "bfloat16",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "BOOL": "bool", "BYTES": "string",
}  # fmt: skip
V2_NAMES = {dtype: name for name, dtype in V2_DTYPES.items()} | dict.fromkeys(FLOAT32_CARRIED - {"bfloat16"}, "FP32")
"""The float8 family has no datatype there, and is FP32, exactly."""


def dumps(document: Any) -> bytes:
    """JSON. Raises InvalidTensor for a text that has no UTF-8."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise InvalidTensor("a string is not valid Unicode text") from None


def loads(body: bytes) -> Any:
    """JSON, NaN and infinity allowed. Raises InferenceFailed."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise bad_answer("it is not JSON") from None


def listed(array: Tensor) -> Any:
    """The tensor as nested lists, strings that are binary as TF Serving's `b64` objects."""
    if array.dtype != object:
        return array.tolist()
    written = np.empty(array.shape, object)
    written.ravel()[:] = [_written(item) for item in array.ravel().tolist()]
    return written.tolist()


def _written(item: str | bytes) -> Any:
    return item if isinstance(item, str) else {"b64": base64.b64encode(item).decode()}


def tensor(value: Any, spec: TensorSpec, name: str) -> Tensor:
    """Nested lists as that output. Raises InferenceFailed."""
    if spec.dtype == "string":
        return _strings(value, name)
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError):
        raise _misfit(name, spec) from None
    wanted = spec.numpy_dtype
    if wanted == np.uint64 and found.dtype.kind in "fO":
        # NOTE: of small and large ones together numpy makes float64
        found = _whole(value, spec, name)
    if not found.size:
        return found.astype(wanted)
    kinds = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}[wanted.kind]
    if found.dtype.kind not in kinds:
        raise _misfit(name, spec)
    with np.errstate(over="ignore"):
        cast = found.astype(wanted)
    if wanted.kind in "iu" and not (cast == found).all():
        raise _misfit(name, spec)
    return np.ascontiguousarray(cast).reshape(found.shape)


def _whole(value: Any, spec: TensorSpec, name: str) -> Tensor:
    """Numbers up to 64 bits, none of them through a float."""
    found = np.array(value, object)
    if set(map(type, found.ravel().tolist())) != {int}:
        raise _misfit(name, spec)
    try:
        return found.astype(np.uint64)
    except OverflowError:
        raise _misfit(name, spec) from None


def fitting(array: Tensor, spec: TensorSpec, name: str) -> Tensor:
    """The output, if it is of the declared shape. Raises InferenceFailed."""
    shape = spec.shape
    good = shape is None or (
        len(shape) == array.ndim and all(one in (None, size) for one, size in zip(shape, array.shape, strict=True))
    )
    if not good or array.dtype != spec.numpy_dtype:
        raise _misfit(name, spec)
    return array


def _misfit(name: str, spec: TensorSpec) -> Exception:
    return bad_answer(f"output {name[:128]!r} is not the {spec.dtype} tensor that was declared")


def _strings(value: Any, name: str) -> Tensor:
    shape: list[int] = []
    level = [value]
    while level and all(isinstance(one, list) for one in level):
        lengths = {len(one) for one in level}
        if len(lengths) > 1 or len(shape) > 32:
            raise bad_answer(f"output {name[:128]!r} is no tensor")
        shape.append(lengths.pop())
        level = [item for one in level for item in one]
    array = np.empty(len(level), object)
    array[:] = [_string(item, name) for item in level]
    return array.reshape(shape)


def _string(item: Any, name: str) -> str | bytes:
    if isinstance(item, str):
        return item
    if isinstance(item, dict) and isinstance(item.get("b64"), str):
        try:
            return base64.b64decode(item["b64"], validate=True)
        except (binascii.Error, ValueError):
            pass
    raise bad_answer(f"output {name[:128]!r} holds what is no string")
