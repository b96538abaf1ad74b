"""Answers whose rows differ in length: what of each row is its own, and what has only filled it up."""

from collections.abc import Mapping, Sequence

import numpy as np

from gateway.types import Tensor


def own_rows(outputs: Mapping[str, Tensor], lengths: Sequence[int]) -> list[dict[str, Tensor]]:
    """For each row, its part of every output. Shapes: [rows, n, ...] -> [length, ...]."""
    return [
        {name: np.ascontiguousarray(tensor[row, :length]) for name, tensor in outputs.items()}
        for row, length in enumerate(lengths)
    ]
