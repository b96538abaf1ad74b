"""Tensors written as JSON: a list of values, flat or nested as the shape says."""

from typing import Any

import numpy as np
import pybase64

from adapters import _tensorjson
from adapters._excerpt import excerpt
from adapters._lists import ITEM_TYPES, cast, first_lengths, flatten
from adapters.v2.datatypes import BOOL, BYTES, DTYPES
from adapters.v2.documents import is_unicode
from adapters.v2.tensors import Declared
from gateway.errors import InvalidTensor
from gateway.types import Tensor, TensorSpec

CONTENT_TYPE = "content_type"
BASE64 = "base64"
"""SPEC: MLServer's content type for bytes that are no text."""

_FEW_LISTS = 64


def read_numbers(array: Any, declared: Declared, body: bytes) -> tuple[Tensor, int] | None:
    """The tensor that a simdjson array of numbers is, and how many lists it seems to be made of.

    None if the fast way does not apply. It is the tensor only if the whole body has no more "[" than those that are
    accounted for, since a list inside of a list of numbers goes unnoticed.
    """
    tensor = _tensorjson.numbers(array, DTYPES[declared.datatype], body)
    if tensor is None:
        return None
    shape = tensor.shape
    if len(shape) > 1:
        if shape != declared.shape or not _is_rectangle(array, shape):
            return None
    elif shape[0] != declared.count:
        return None
    lists = count = 1
    for length in shape[:-1]:
        count *= length
        lists += count
    return tensor.reshape(declared.shape), lists


def _is_rectangle(array: Any, shape: tuple[int, ...]) -> bool:
    """PERF: few lists have been measured one by one already; for many, the text without its numbers is compared."""
    if int(np.prod(shape[:-1])) <= _FEW_LISTS:
        return True
    brackets: bytes = array.mini.translate(None, b"0123456789+-.eE")
    return brackets == _tensorjson.skeleton(shape)


def read_exactly(value: Any, declared: Declared, content_type: Any = None) -> Tensor:
    """The tensor that any parsed JSON value is. Raises InvalidTensor."""
    items = _items(value, declared)
    # A picture is never text, so its strings are base64 whether or not they say so.
    if declared.datatype == BYTES and (content_type == BASE64 or declared.spec.media == "image"):
        items = [_decoded(item, declared) for item in items]
    if declared.datatype == BYTES and not is_unicode([item for item in items if isinstance(item, str)]):
        raise declared.misfit("a string is not Unicode")
    spec = TensorSpec(declared.name, "string" if declared.datatype == BYTES else DTYPES[declared.datatype].name, None)
    try:
        tensor = cast(_as_sent(items, spec.numpy_dtype), spec)
    except OverflowError:
        tensor = None
    if tensor is None:
        raise _first_fault(items, declared)
    return declared.fit(tensor.reshape(declared.shape))


def _items(value: Any, declared: Declared) -> list[Any]:
    if not isinstance(value, list):
        if declared.count != 1:
            raise declared.misfit("data must be a list")
        return [value]
    shape = first_lengths(value)
    if len(shape) > max(1, len(declared.shape)):
        raise declared.misfit(f"data is nested {len(shape)} deep")
    items = flatten(value, shape)
    if items is None:
        raise declared.misfit("data is ragged: its lists have different lengths or depths")
    if len(shape) == 1:
        if len(items) != declared.count:
            raise declared.misfit(f"the shape holds {declared.count} elements, but data has {len(items)}")
    elif tuple(shape) != declared.shape:
        raise declared.misfit(f"data is nested as {shape}")
    return items


def _as_sent(items: list[Any], dtype: np.dtype) -> list[Any]:
    """What stands for another value in JSON: null for NaN among floats, 0 and 1 for booleans."""
    kinds = set(map(type, items))
    if dtype.kind == "f" and type(None) in kinds:
        return [float("nan") if item is None else item for item in items]
    if dtype.kind == "b" and int in kinds and all(item in (0, 1) for item in items if type(item) is int):
        return [bool(item) if type(item) is int else item for item in items]
    return items


def _decoded(item: Any, declared: Declared) -> bytes:
    try:
        return pybase64.b64decode(item, validate=True)
    except (ValueError, TypeError):
        raise declared.misfit(f"{excerpt(item)} is not base64") from None


def _first_fault(items: list[Any], declared: Declared) -> InvalidTensor:
    dtype = DTYPES[declared.datatype]
    types = ITEM_TYPES[dtype.kind] | ({type(None)} if dtype.kind == "f" else set())
    for index, item in enumerate(items):
        if type(item) not in types and not (declared.datatype == BOOL and item in (0, 1)):
            return declared.misfit(f"element {index} is {_shown(item)}")
        if dtype.kind in "iu" and not np.iinfo(dtype).min <= item <= np.iinfo(dtype).max:
            return declared.misfit(f"element {index} is {item}, which is out of range")
    return declared.misfit("a number is out of range")


def _shown(item: Any) -> str:
    if isinstance(item, bool) or item is None:
        return {True: "true", False: "false", None: "null"}[item]
    if isinstance(item, dict):
        return "an object"
    return excerpt(item)


def write(tensor: Tensor, datatype: str, non_finite: _tensorjson.NonFinite) -> tuple[bytes, bool]:
    """The tensor as a flat JSON list, and whether its strings had to be written as base64."""
    flat = tensor.reshape(-1)
    if datatype == BYTES and not _is_text(flat):
        flat = np.array([_encoded(item) for item in flat.tolist()], object)
        return _tensorjson.dump(flat, non_finite), True
    return _tensorjson.dump(flat, non_finite), False


def _is_text(strings: Tensor) -> bool:
    try:
        for item in strings.tolist():
            if isinstance(item, bytes):
                item.decode()
    except UnicodeDecodeError:
        return False
    return True


def _encoded(item: Any) -> str:
    data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
    return pybase64.b64encode(data).decode("ascii")
