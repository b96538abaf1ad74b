"""What the rows of a body must become, and the checks that come before any memory is taken for them."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from gateway.errors import BodyTooLarge, InvalidTensor
from gateway.interfaces import DecodeLimits


class RowSpec(Struct, frozen=True):
    """The tensor wanted of a body: `[rows, width]`. A model's other dimensions are the caller's to restore."""

    dtype: np.dtype
    """A number type, or object for texts."""
    width: int | None = None
    """Values a row; None where the model takes any number, the same in each row."""
    limits: DecodeLimits = DecodeLimits()

    def check_width(self, count: int, place: str, noun: str = "columns") -> None:
        """Raise InvalidTensor unless a row of `count` values is what the model takes."""
        if self.width is not None and count != self.width:
            raise InvalidTensor(f"{place}: expected {self.width} {noun}, got {count}")

    def check_budget(self, rows: int, width: int) -> None:
        """Raise BodyTooLarge if so many rows of that width are too much for one request."""
        if rows * width > self.limits.elements:
            raise BodyTooLarge(f"{rows} rows of {width} values are over the limit of {self.limits.elements} values")

    def check_shape(self, shape: Sequence[int], place: str) -> int:
        """The values that a row of this claimed shape holds; raises what check_width and check_budget raise."""
        if any(size < 0 for size in shape):
            raise InvalidTensor(f"{place}: a shape holds no negative sizes")
        count = math.prod(shape)
        self.check_width(count, place, "values by its shape")
        self.check_budget(1, count)
        return count
