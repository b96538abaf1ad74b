"""Frames between a gateway and its workers: 16 bytes of prelude, a JSON header, raw buffers.

Both sides use this file, the worker by path and with the Python that the user has (3.10 or newer), so it needs the
standard library and numpy only. Text and bytes travel as 0-d object arrays, so that every payload is a tensor.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

PRELUDE = struct.Struct("<BxxxIQ")
"""Kind, bytes of header, bytes of payload."""

START, READY, REQUEST, PART, END, ERROR, CANCEL, CREDIT, STATUS = range(1, 10)
"""START and READY open a connection. A REQUEST is answered by END or ERROR, before which a streamed one gets PARTs,
at most as many as the CREDIT that it was given. CANCEL ends a request early; it too is answered by END. STATUS
tells anew what READY has told."""

PARTS_AT_ONCE = 8
"""Parts of a stream that may be under way before its reader has taken any."""

MOST_BYTES = 2 << 30
ALIGNMENT = 16
SCRATCH_BYTES = 1 << 16
NUMERIC = "biufc"

Buffer = bytes | bytearray | memoryview
Tensors = Mapping[str, np.ndarray]


class Frame(NamedTuple):
    """One frame, read."""

    kind: int
    header: dict[str, Any]
    tensors: dict[str, np.ndarray]


# Writing...


def pack(kind: int, header: dict[str, Any], tensors: Tensors | None = None) -> list[Buffer]:
    """The buffers to send, one after the other. Raises TypeError or ValueError for what cannot be sent."""
    buffers: list[Buffer] = []
    if tensors:
        header = {**header, "tensors": [_declare(name, tensor, buffers) for name, tensor in tensors.items()]}
    text = _encode(header).encode("ascii")
    text += b" " * (-len(text) % ALIGNMENT)
    payload = sum(len(buffer) for buffer in buffers)
    if payload + len(text) > MOST_BYTES:
        raise ValueError(f"a message of {payload >> 20} MiB is larger than the limit of {MOST_BYTES >> 20} MiB")
    head = PRELUDE.pack(kind, len(text), payload) + text
    if len(head) + payload <= SCRATCH_BYTES:
        return [b"".join([head, *buffers])]
    return [head, *buffers]


def _declare(name: str, tensor: np.ndarray, buffers: list[Buffer]) -> dict[str, Any]:
    kind = tensor.dtype.kind
    if kind in NUMERIC and tensor.dtype.itemsize <= 16:
        if not tensor.dtype.isnative:
            tensor = tensor.astype(tensor.dtype.newbyteorder("="))
        large = tensor.nbytes > SCRATCH_BYTES
        _add(np.ascontiguousarray(tensor).data.cast("B") if large else tensor.tobytes(), buffers)
        return {"name": name, "dtype": tensor.dtype.str, "shape": tensor.shape}
    if kind in "US":
        tensor = tensor.astype(object)
    elif kind != "O":
        raise TypeError(f"an array of {tensor.dtype} cannot be sent")
    if not tensor.ndim and isinstance(tensor.item(), (str, bytes, bytearray)):
        item = tensor.item()
        data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else bytes(item)
        _add(data, buffers)
        return {"name": name, "dtype": "text" if isinstance(item, str) else "bytes", "bytes": len(data)}
    return {"name": name, "dtype": "items", "shape": tensor.shape, **_items(tensor.ravel().tolist(), buffers)}


def _items(items: list[Any], buffers: list[Buffer]) -> dict[str, Any]:
    """Any JSON values, and beside them the bytes among them."""
    places = [place for place, item in enumerate(items) if isinstance(item, (bytes, bytearray))]
    if not places:
        return {"items": items}
    lengths = [len(items[place]) for place in places]
    _add(b"".join(items[place] for place in places), buffers)
    for place in places:
        items[place] = None
    return {"items": items, "places": places, "lengths": lengths}


def _add(data: Buffer, buffers: list[Buffer]) -> None:
    buffers.append(data)
    if len(data) % ALIGNMENT:
        buffers.append(b"\0" * (-len(data) % ALIGNMENT))


def _plain(value: Any) -> Any:
    """What a user's class may put into a dict beyond JSON's own types."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


# Reading...


class Reader:
    """Bytes to frames: fill `space()` and say how much with `filled`."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._held = 0
        self._large: memoryview | None = None
        """A frame that outgrows the scratch is read right where it will stay."""

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return (self._scratch if self._large is None else self._large)[self._held :]

    def filled(self, count: int) -> list[Frame]:
        """The frames that are whole now. Raises ValueError for what is no frame."""
        self._held += count
        if self._large is not None:
            if self._held < len(self._large):
                return []
            whole, self._large, self._held = self._large, None, 0
            return [_read(whole)]
        return list(self._scan())

    def _scan(self) -> Iterator[Frame]:
        start = 0
        while self._held - start >= PRELUDE.size:
            _, header, payload = PRELUDE.unpack_from(self._scratch, start)
            size = PRELUDE.size + header + payload
            if size > MOST_BYTES + SCRATCH_BYTES:
                raise ValueError("a frame is too large")
            if self._held - start < size:
                if size > SCRATCH_BYTES:
                    self._grow(start, size)
                    return
                break
            yield _read(memoryview(bytearray(self._scratch[start : start + size])))
            start += size
        if start:
            rest = bytes(self._scratch[start : self._held])
            self._scratch[: len(rest)] = rest
            self._held = len(rest)

    def _grow(self, start: int, size: int) -> None:
        begun = self._scratch[start : self._held]
        self._large = np.empty(size, np.uint8).data
        self._large[: len(begun)] = begun
        self._held = len(begun)


def _read(whole: memoryview) -> Frame:
    kind, length, _ = PRELUDE.unpack_from(whole, 0)
    start = PRELUDE.size + length
    header = _decode(str(whole[PRELUDE.size : start], "ascii"))[0]
    payload = whole[start:]
    tensors: dict[str, np.ndarray] = {}
    at = 0
    for declared in header.pop("tensors", ()):
        tensors[declared["name"]], used = _tensor(declared, payload[at:])
        at += used + -used % ALIGNMENT
    return Frame(kind, header, tensors)


_decode = json.JSONDecoder().raw_decode


def _tensor(declared: dict[str, Any], payload: memoryview) -> tuple[np.ndarray, int]:
    """The tensor, and the bytes of payload that were its own."""
    dtype = declared["dtype"]
    if dtype in ("text", "bytes"):
        length = declared["bytes"]
        data = bytes(payload[:length])
        return _objects([data.decode("utf-8", "surrogatepass") if dtype == "text" else data], ()), length
    shape = tuple(declared["shape"])
    if dtype == "items":
        items, used = declared["items"], 0
        for place, length in zip(declared.get("places", ()), declared.get("lengths", ()), strict=True):
            items[place] = bytes(payload[used : used + length])
            used += length
        return _objects(items, shape), used
    kind = np.dtype(dtype)
    if kind.kind not in NUMERIC:
        raise ValueError(f"a tensor of {kind} is no tensor")
    count = prod(shape)
    return np.frombuffer(payload, kind, count).reshape(shape), count * kind.itemsize


def _objects(items: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    tensor = np.empty(len(items), object)
    for place, item in enumerate(items):
        tensor[place] = item  # one by one: numpy would look into lists
    return tensor.reshape(shape)
