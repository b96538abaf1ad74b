"""Nested lists, as a JSON parser leaves them, to tensors: exactly, and without recursion."""

from itertools import chain
from typing import Any

import numpy as np

from gateway.types import Tensor, TensorSpec

ITEM_TYPES: dict[str, set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float},
    "c": set(),
    "O": {str, bytes},
}
"""The kind of a dtype to the Python types of the values that it takes."""

ANY_TYPES: set[type] = {bool, int, float, str, bytes}


def item_types(spec: TensorSpec) -> set[type]:
    """The Python types of the values that the declared tensor takes."""
    return ANY_TYPES if spec.dtype == "any" else ITEM_TYPES[spec.numpy_dtype.kind]


def first_lengths(value: Any) -> list[int]:
    """The shape that the first item of every list suggests."""
    lengths = []
    while isinstance(value, list):
        lengths.append(len(value))
        value = value[0] if value else None
    return lengths


def flatten(value: Any, shape: list[int]) -> list[Any] | None:
    """The items of a list of that shape in row-major order; None if any list has another length or depth."""
    level = [value]
    for length in shape:
        if set(map(type, level)) - {list} or set(map(len, level)) - {length}:
            return None
        level = list(chain.from_iterable(level))
    return None if list in set(map(type, level)) else level


@np.errstate(over="ignore")
def cast(items: list[Any], spec: TensorSpec) -> Tensor | None:
    """The items as a vector of the declared dtype; None if one of them is of another type or out of range.

    Floats beyond the dtype become infinities; integers are never rounded.
    """
    types = set(map(type, items))
    if not types <= item_types(spec):
        return None
    dtype = _natural(types, items) if spec.dtype == "any" else spec.numpy_dtype
    if dtype.kind == "O":
        strings = np.empty(len(items), object)
        strings[:] = items
        return strings
    if dtype.kind == "f":
        return np.array(items, np.float64).astype(dtype)
    try:
        return np.array(items, dtype)
    except OverflowError:
        return None


def _natural(types: set[type], items: list[Any]) -> np.dtype:
    """The dtype that values of those types have by themselves; texts never swallow the numbers among them."""
    if types == {bool}:
        return np.dtype(bool)
    if types == {int}:
        dtype = np.array(items).dtype  # int64, or uint64 where one needs it
        return dtype if dtype.kind in "iu" else np.dtype(object)
    return np.dtype(np.float64 if types <= {int, float} else object)


def int_range(dtype: np.dtype) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
