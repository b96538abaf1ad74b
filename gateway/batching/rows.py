"""Requests become one request, row under row, and its answer becomes theirs again."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from gateway.errors import InferenceFailed
from gateway.types import InferenceRequest, InferenceResponse, Tensor

VIEWED_BYTES = 64 << 10
"""An answer of more is copied out of the joint one, so that a slow client's few rows do not keep all of it."""


def joined(requests: Sequence[InferenceRequest], rows: int, pad_to: Sequence[int] = ()) -> InferenceRequest:
    """All rows as one request, filled up with copies of the last one. `requests` are alike but for their rows."""
    first = requests[0]
    padding = padded(rows, pad_to) - rows
    if len(requests) == 1 and not padding:
        return first
    inputs = {}
    for name, tensor in first.inputs.items():
        parts = [request.inputs[name] for request in requests]
        if padding:
            parts += [parts[-1][-1:]] * padding
        inputs[name] = np.concatenate(parts) if len(parts) > 1 else tensor
    return InferenceRequest(inputs, first.signature, first.outputs, deadline=_latest(requests))


def padded(rows: int, pad_to: Sequence[int]) -> int:
    """The number of rows that the model is given for so many; `pad_to` is in ascending order."""
    place = bisect_left(pad_to, rows)
    return pad_to[place] if place < len(pad_to) else rows


def parted(response: InferenceResponse, counts: Sequence[int], rows: int) -> list[InferenceResponse]:
    """Each request's own rows. Raises InferenceFailed unless every output has as many rows as the model was given."""
    outputs = response.outputs
    for name, tensor in outputs.items():
        if not tensor.ndim or tensor.shape[0] != rows:
            given = tensor.shape[0] if tensor.ndim else "no"
            raise InferenceFailed(
                f"{rows} rows were run together, but the model gave {given} rows for its output {name!r}; "
                "it needs mode = 'off' in the [batching] table"
            )
    copies = {name: tensor.nbytes > VIEWED_BYTES for name, tensor in outputs.items()}
    start, parts = 0, []
    for count in counts:
        own = {name: _part(tensor[start : start + count], copies[name]) for name, tensor in outputs.items()}
        parts.append(InferenceResponse(own, response.parameters))
        start += count
    return parts


def _part(rows: Tensor, copied: bool) -> Tensor:
    return rows.copy() if copied else rows


def _latest(requests: Sequence[InferenceRequest]) -> float | None:
    """When nobody waits any more; None where somebody waits forever."""
    deadlines = [request.deadline for request in requests if request.deadline is not None]
    return max(deadlines) if len(deadlines) == len(requests) else None
