"""Arrays reach the model's dtype, or are refused where they cannot."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from adapters._cast import cast
from gateway.errors import InvalidTensor
from gateway.types import Tensor


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (np.int64([[1, 2]]), "float32", [[1.0, 2.0]]),
        (np.array([[True, False]]), "float32", [[1.0, 0.0]]),
        (np.array([[1, 2]], ">f4"), "float32", [[1.0, 2.0]]),
        (np.float64([[1e39, nan, 0.1]]), "float32", [[inf, nan, float(np.float32(0.1))]]),
        (np.float32([[70000.0]]), "float16", [[inf]]),
        (np.float64([[2.0**63 - 1024, -(2.0**63)]]), "int64", [[2**63 - 1024, -(2**63)]]),
        (np.uint64([[2**63 - 1]]), "int64", [[2**63 - 1]]),
        (np.int64([[255, 0]]), "uint8", [[255, 0]]),
        (np.array([[True]]), "int8", [[1]]),
        (np.float32([[0, 1]]), "bool", [[False, True]]),
        (np.int8([[0, 1]]), "bool", [[False, True]]),
        (np.array([["a", "bc"]]), "object", [["a", "bc"]]),
        (np.array([[b"a"]]), "object", [[b"a"]]),
        (np.zeros((0, 2), np.int64), "int8", []),
        (np.int64(3), "int8", 3),
    ],
)
def test_cast(array: Tensor, dtype: str, expected: Any) -> None:
    """Values that the dtype can hold are kept; floats beyond it become infinities."""
    result = cast(array, np.dtype(dtype))
    assert (dtype, array.shape) == (result.dtype.name, result.shape)
    assert result.dtype.isnative
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(expected, result.tolist() if expected else expected)


def test_no_copy() -> None:
    """What is right already is handed on as it is."""
    array = np.float32([[1, 2]])
    assert cast(array, np.dtype(np.float32)) is array
    assert cast(np.asfortranarray(np.eye(2)), np.dtype(np.float64)).flags.c_contiguous


@pytest.mark.parametrize(
    ("array", "dtype", "text"),
    [
        (np.float32([[1, 2], [3, 2.5]]), "int64", "row 2, column 2: 2.5 does not fit int64"),
        (np.float64([[2.0**63]]), "int64", "row 1, column 1: 9.223372036854775807e18 does not fit int64"),
        (np.float32([[nan]]), "int8", "row 1, column 1: nan does not fit int8"),
        (np.float32([[inf]]), "int8", "row 1, column 1: inf does not fit int8"),
        (np.int64([300]), "int8", "row 1: 300 does not fit int8"),
        (np.int64([[-1]]), "uint64", "row 1, column 1: -1 does not fit uint64"),
        (np.uint64([[2**63]]), "int64", "row 1, column 1: 9223372036854775808 does not fit int64"),
        (np.int64([[[0, 300]]]), "int8", "row 1, index [0, 1]: 300 does not fit int8"),
        (np.int64(300), "int8", "the value: 300 does not fit int8"),
        (np.int64([[2]]), "bool", "row 1, column 1: 2 is neither 0 nor 1"),
        (np.float32([[nan]]), "bool", "row 1, column 1: nan is neither 0 nor 1"),
        (np.array([["1"]]), "float32", "the body holds text, the model takes float32"),
        (np.array([[b"1"]]), "int8", "the body holds bytes, the model takes int8"),
        (np.float32([[1]]), "object", "the body holds float32, the model takes text"),
        (np.complex64([[1]]), "float32", "the body holds complex64, the model takes float32"),
    ],
)
def test_refused(array: Tensor, dtype: str, text: str) -> None:
    """What would change its meaning is named by its place."""
    with pytest.raises(InvalidTensor) as caught:
        cast(array, np.dtype(dtype))
    assert text.replace("9.223372036854775807e18", "9.223372036854776e+18") == str(caught.value)


def test_other_units() -> None:
    """The caller's word and count for a row are used."""
    with pytest.raises(InvalidTensor, match=r"^record 7, column 1: 2\.5 does not fit int64$"):
        cast(np.float32([[2.5]]), np.dtype(np.int64), "record", 7)
