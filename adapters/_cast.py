"""Tensors from the dtype that was sent to the dtype that the model takes."""

import numpy as np

from adapters._excerpt import excerpt
from gateway.errors import InvalidTensor
from gateway.types import Tensor


def cast(array: Tensor, dtype: np.dtype, unit: str = "row", first: int = 1) -> Tensor:
    """`array` as a C-contiguous, native tensor of `dtype`.

    A number may lose digits in a float model, and becomes an infinity beyond its range. What an integer model cannot
    hold, and text for numbers, raises InvalidTensor, which names the `unit` (counted from `first` along the first
    axis) and the column.
    """
    sent, wanted = array.dtype.kind, dtype.kind
    if array.dtype != dtype:
        if sent not in ("US" if wanted == "O" else "biuf"):
            raise InvalidTensor(f"the body holds {_word(array.dtype)}, the model takes {_word(dtype)}")
        if wanted in "iu":
            _refuse(array, _unfit(array, dtype), f"does not fit {dtype.name}", unit, first)
        if wanted == "b":
            _refuse(array, (array != 0) & (array != 1), "is neither 0 nor 1", unit, first)
    if array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned:
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype, order="C")


def _word(dtype: np.dtype) -> str:
    return {"U": "text", "O": "text", "S": "bytes", "V": "structures"}.get(dtype.kind, dtype.name)


def _unfit(array: Tensor, dtype: np.dtype) -> Tensor:
    """Which values are no integers of `dtype`."""
    info = np.iinfo(dtype)
    if array.dtype.kind == "f":
        # NOTE: max + 1 is a power of two, exact in any float; NaN compares false.
        whole: Tensor = (array >= float(info.min)) & (array < float(int(info.max) + 1)) & (np.trunc(array) == array)
        return ~whole
    low, high = max(info.min, _least(array.dtype)), min(info.max, _greatest(array.dtype))
    wrong: Tensor = (array < low) | (array > high)
    return wrong


def _least(dtype: np.dtype) -> int:
    return 0 if dtype.kind == "b" else int(np.iinfo(dtype).min)


def _greatest(dtype: np.dtype) -> int:
    return 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)


def _refuse(array: Tensor, wrong: Tensor, why: str, unit: str, first: int) -> None:
    if wrong.any():
        index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        raise InvalidTensor(f"{_place([int(i) for i in index], unit, first)}: {excerpt(array[index].item())} {why}")


def _place(index: list[int], unit: str, first: int) -> str:
    if not index:
        return "the value"
    row = f"{unit} {index[0] + first}"
    if len(index) == 1:
        return row
    return f"{row}, column {index[1] + 1}" if len(index) == 2 else f"{row}, index {index[1:]}"
