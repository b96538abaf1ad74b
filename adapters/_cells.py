"""One number as people and programs spell it in text: how it is read, for each dtype."""

from collections.abc import Callable
from math import nan
from typing import Any

import numpy as np

from gateway.errors import InvalidTensor

_EXACT = 2**53
"""A float of at most this size is the very integer that its text named."""
_BOOLS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def cell_type(dtype: np.dtype) -> tuple[Callable[[str], Any], str]:
    """How a cell is read, with ValueError for what it cannot be, and the words for what it should be.

    An empty cell is NaN where there is one.
    """
    if dtype.kind == "O":
        return str, "text"
    if dtype.kind == "f":
        return _float, "a number"
    if dtype.kind == "b":
        return _bool, "a bool"
    if dtype.kind not in "iu":
        raise InvalidTensor(f"a {dtype.name} cannot be written as text")
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def parse(cell: str) -> int:
        value = _int(cell)
        if not low <= value <= high:
            raise ValueError
        return value

    return parse, f"an integer of {dtype.name}"


def _float(cell: str) -> float:
    text = cell.strip()
    if "_" in text or not text.isascii():  # Python's own spellings
        raise ValueError
    return float(text) if text else nan


def _int(cell: str) -> int:
    """Exactly; `3.0` and `1e3` are integers too, where a float can tell."""
    text = cell.strip()
    if "_" in text or not text.isascii():
        raise ValueError
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        raise


def _bool(cell: str) -> int:
    value = _BOOLS.get(cell.strip().lower())
    if value is None:
        raise ValueError
    return value


def is_number(cell: str) -> bool:
    """Whether a float could be read from the cell."""
    try:
        _float(cell)
    except ValueError:
        return False
    return True
