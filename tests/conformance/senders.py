"""What the parity matrix asks of a protocol: ways to send a tensor to a model's only input and to read its only output.

Each protocol lists its ways as SENDERS in tests/conformance/<adapter>/parity.py.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import httpx
import numpy as np

ALL = frozenset({"float32", "float64", "int64", "uint64", "uint8", "bool", "string"})


class Gate(NamedTuple):
    """Where the gateway listens."""

    url: str
    grpc_port: int


class Sender(NamedTuple):
    """One way."""

    send: Callable[[Gate, str, np.ndarray], np.ndarray]
    """Gateway, model and tensor to the output, in the dtype that the answer's text or bytes suggest."""
    dtypes: frozenset[str] = ALL
    """What it can carry."""
    not_finite: bool = True
    """Whether it can carry NaN and infinities."""


def post(url: str, body: Any, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """The answer to a body, JSON unless it is bytes; NaN and infinities as Python's own JSON writes them."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(url, content=content, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply


def array_of(values: Any, dtype: np.dtype) -> np.ndarray:
    """Parsed JSON, or what a format's reader gave, as the tensor that it stands for."""
    if dtype.kind == "O":
        return np.array(values, object)
    wide = np.array(values, np.float64) if dtype.kind == "f" else np.array(values, dtype)
    return wide.astype(dtype)
