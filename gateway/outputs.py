"""How large an answer may be: told before the run where the signature tells, else before it is written out."""

from math import prod

from gateway.errors import BodyTooLarge
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata

_ROW_BYTES, _TEXT_BYTES = 16, 64
FEW_ROWS, FEW_BYTES = 4096, 16 << 10
"""Answers to so few rows, or to so short a body, are not looked at before the run."""


def rows_of(request: InferenceRequest) -> int:
    """The most rows of any input; at least 1."""
    return max((tensor.shape[0] for tensor in request.inputs.values() if tensor.ndim), default=1) or 1


def check_outputs(request: InferenceRequest, metadata: ModelMetadata, most: int) -> None:
    """Raise BodyTooLarge where so many rows make more bytes than that, by what the signature declares of a row."""
    for tensor in request.inputs.values():
        if tensor.ndim and len(tensor) > FEW_ROWS:
            break
    else:
        return
    signature = metadata.signatures.get(request.signature)
    if signature is None:
        return
    rows = rows_of(request)
    wanted = [spec for name, spec in signature.outputs.items() if not request.outputs or name in request.outputs]
    size = sum(
        rows * prod(step or 1 for step in spec.shape[1:]) * spec.numpy_dtype.itemsize
        for spec in wanted
        if spec.shape and spec.shape[0] is None
    )
    if size > most:
        raise BodyTooLarge(f"{rows} rows: the answer would have {size} bytes, over the limit of {most}; send fewer")


def check_answer(response: InferenceResponse, most: int) -> int:
    """How many bytes' work it is to write the answer out. Raises BodyTooLarge for more bytes than may be."""
    size = work = 0
    for tensor in response.outputs.values():
        size += tensor.nbytes
        # A row that holds nothing is written out as well, and a text takes more than its pointer.
        work += tensor.nbytes + _ROW_BYTES * (len(tensor) if tensor.ndim else 1)
        if tensor.dtype.hasobject:
            work += _TEXT_BYTES * tensor.size
    if size > most:
        raise BodyTooLarge(f"the answer has {size} bytes, over the limit of {most}; send fewer rows, or smaller ones")
    return work
