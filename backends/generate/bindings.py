"""What decoders of both layouts bind to their sessions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.generate.layout import Layout
from gateway.errors import LoadFailed

LOGITS_BYTES = 64 << 20
"""What a chunk's logits may take: a prompt's chunks are shorter where the vocabulary is large."""
DEVICE = "cpu"
POSITIONS = "position_ids"

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def bind(binding: Any, name: str, array: NDArray[np.int64]) -> None:
    """Give the session the array, whose memory it reads at the run."""
    binding.bind_input(name, DEVICE, 0, np.int64, array.shape, array.ctypes.data)


def dtype_of(kinds: dict[str, str], name: str) -> Any:
    """The type of an input or output, by ONNX Runtime's words for all of them. Raises LoadFailed."""
    if name not in kinds:
        raise LoadFailed(f"the model has no {name!r}, which its configuration names")
    if kinds[name] not in _DTYPES:
        raise LoadFailed(f"{name!r} is {kinds[name]}; float32 and float16 are supported")
    return _DTYPES[kinds[name]]


def vocabulary_size(session: Any, layout: Layout) -> int:
    """Tokens that the model tells apart."""
    shapes = {value.name: value.shape for value in session.get_outputs()}
    last = (shapes.get(layout.names["logits"]) or [None])[-1]
    return last if isinstance(last, int) else layout.vocabulary_size
