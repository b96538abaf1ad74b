"""What a body's rows must become is checked before they are built."""

import numpy as np
import pytest

from adapters._rowspec import RowSpec
from gateway.errors import BodyTooLarge, InvalidTensor
from gateway.interfaces import DecodeLimits

SPEC = RowSpec(np.dtype(np.float32), 4, DecodeLimits(elements=8))
FREE = RowSpec(np.dtype(np.float32), None, DecodeLimits(elements=8))


def test_width() -> None:
    """A row of another width is refused in the caller's words; where any width is taken, none is."""
    SPEC.check_width(4, "row 1")
    FREE.check_width(7, "row 1")
    with pytest.raises(InvalidTensor, match=r"^row 3: expected 4 values, got 5$"):
        SPEC.check_width(5, "row 3", "values")


def test_budget() -> None:
    """The limit itself is allowed."""
    SPEC.check_budget(2, 4)
    with pytest.raises(BodyTooLarge, match=r"^3 rows of 4 values are over the limit of 8 values$"):
        SPEC.check_budget(3, 4)


@pytest.mark.parametrize(("shape", "expected"), [([4], 4), ([2, 2], 4), ([1, 4, 1], 4)])
def test_shape(shape: list[int], expected: int) -> None:
    """A claimed shape holds the product of its sizes."""
    assert expected == SPEC.check_shape(shape, "row 1")


@pytest.mark.parametrize(
    ("spec", "shape", "error", "text"),
    [
        (SPEC, [5], InvalidTensor, "row 1: expected 4 values by its shape, got 5"),
        (SPEC, [-2, -2], InvalidTensor, "row 1: a shape holds no negative sizes"),
        (SPEC, [2**62, 2**62], InvalidTensor, f"row 1: expected 4 values by its shape, got {2**124}"),
        (FREE, [2**40], BodyTooLarge, f"1 rows of {2**40} values are over the limit of 8 values"),
    ],
)
def test_shape_refused(spec: RowSpec, shape: list[int], error: type[Exception], text: str) -> None:
    """A shape is judged with integers that do not overflow."""
    with pytest.raises(error) as caught:
        spec.check_shape(shape, "row 1")
    assert text == str(caught.value)
