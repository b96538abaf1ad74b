"""The commonest bodies, fast: data.tensor or data.ndarray of plain numbers, with names and a simple meta.

Anything else comes back as None, for the exact way to judge.
"""

from functools import partial
from typing import Any

import numpy as np
import orjson
import simdjson
from msgspec import Struct

from adapters import _tensorjson
from adapters.seldon.messages import Form, Payload, meta_of, reshape
from gateway.errors import MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)
_BEYOND_INT64 = float(1 << 63)
_LARGE = 1 << 53
"""From here on a double does not hold every whole number."""


class Numbers(Struct, frozen=True):
    """A message whose payload is an array already."""

    payload: Payload
    """Without its value."""
    array: Tensor


def read_numbers(body: bytes, limits: DecodeLimits, dtype: np.dtype | None) -> Numbers | None:
    """The message, or None; the array is of `dtype` where the numbers allow it, else of numpy's choice.

    Raises BodyTooLarge, and InvalidTensor for a shape that does not fit.
    """
    _tensorjson.check_size(body, limits.elements)
    found = _tensorjson.borrow(body, partial(_read, body, dtype))
    if found is None:
        return None
    if found.array.size > limits.elements:
        raise _tensorjson.too_many(limits.elements)
    payload, array, shape = found.payload, found.array, found.shape
    return Numbers(payload, array if shape is None else reshape(array, shape))


class _Found(Struct, frozen=True):
    payload: Payload
    array: Tensor
    shape: list[Any] | None


def _read(body: bytes, dtype: np.dtype | None, document: Any) -> _Found | None:
    if not isinstance(document, simdjson.Object) or not _known(document, {"data", "meta"}):
        return None
    data: Any = document["data"]
    if not isinstance(data, simdjson.Object) or not _known(data, {"names", "tensor", "ndarray"}):
        return None
    form: Form = "tensor" if "tensor" in data else "ndarray"
    values, shape = data[form], None
    lists: list[tuple[int, ...]] = []
    if form == "tensor":
        if "ndarray" in data or not isinstance(values, simdjson.Object) or not _known(values, {"shape", "values"}):
            return None
        shape, values = _list(values["shape"]), values["values"]
        lists.append((len(shape),))
    names = _list(data["names"]) if "names" in data else None
    if names is not None:
        lists.append((len(names),))
    array = _numbers(values, dtype, body) if isinstance(values, simdjson.Array) else None
    if array is None or not set(map(type, names or ())) <= {str} or not set(map(type, shape or ())) <= {int}:
        return None
    if not _tensorjson.is_rectangular(body, [array.shape, *lists], partial(_skeleton, document, array)):
        return None
    meta = _meta(document)
    return None if meta is _NO_META else _Found(Payload(form, None, names or [], meta), array, shape)


def _list(value: Any) -> list[Any]:
    """Raises ValueError, which means "look exactly", for anything else."""
    if not isinstance(value, simdjson.Array):
        raise ValueError
    items: list[Any] = value.as_list()
    return items


def _known(members: Any, names: set[str]) -> bool:
    keys = list(members)
    return set(keys) <= names and len(set(keys)) == len(keys)


_NO_META: dict[str, Any] = {"": ""}


def _meta(document: Any) -> dict[str, Any] | None:
    """The meta, or _NO_META for one that must be looked at exactly."""
    if "meta" not in document:
        return None
    meta = document["meta"]
    if not isinstance(meta, simdjson.Object):
        return _NO_META
    value: dict[str, Any] = meta.as_dict()
    # A bracket or a large number in it would be mistaken for a list of the tensor's, or lose digits.
    if any(type(one) not in (str, bool, dict) or (type(one) is dict and one) for one in value.values()):
        return _NO_META
    try:
        return meta_of({"meta": value})
    except MalformedBody:
        return _NO_META


def _numbers(values: Any, dtype: np.dtype | None, body: bytes) -> Tensor | None:
    """SPEC: without a dtype, numpy's choice: int64, or float64 as soon as there is a fraction."""
    if dtype is not None and dtype.kind in "fiu":
        array = _tensorjson.numbers(values, dtype, body)
        if array is not None:
            return array
    elif dtype is None and not _begins_with_fraction(values):
        array = _tensorjson.numbers(values, _INT64, body)
        if array is not None:
            return array
    array = _tensorjson.numbers(values, _FLOAT64, body)
    # Whole numbers this large may have come as such, and a double does not hold them all.
    most = _BEYOND_INT64 if dtype is None else _LARGE
    return None if array is None or not bool((np.abs(array) < most).all()) else array


def _begins_with_fraction(values: Any) -> bool:
    """PERF: 13 us to find out by trying."""
    while isinstance(values, simdjson.Array) and len(values):
        values = values[0]
    return type(values) is float


def _skeleton(document: Any, array: Tensor) -> bytes:
    """The body that the array should have come in."""
    return _object(
        document, lambda key, value: _object(value, partial(_data, array)) if key == "data" else _text(value)
    )


def _data(array: Tensor, key: str, value: Any) -> bytes:
    if key == "names":
        return _text(value)
    if key == "ndarray":
        return _tensorjson.skeleton(array.shape)
    return _object(value, lambda key, inner: _tensorjson.skeleton(array.shape) if key == "values" else _text(inner))


def _object(members: Any, write: Any) -> bytes:
    return b"{" + b",".join(orjson.dumps(key) + b":" + write(key, members[key]) for key in members) + b"}"


def _text(value: Any) -> bytes:
    if isinstance(value, simdjson.Object):
        return orjson.dumps(value.as_dict())
    return orjson.dumps(_list(value))
