"""RecordIO frames that hold protobuf records: SageMaker's own binary format, out.

A record a row; each output is a float32 tensor in the record's label map, texts are bytes there.
Source: see `_recordio.py`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from adapters._recordio import HEADER_BYTES, MAGIC
from gateway.types import Tensor

_LABEL, _UID, _METADATA = b"\x12", b"\x1a", b"\x22"
_KEY, _VALUE = b"\x0a", b"\x12"
_FLOAT32, _BYTES = b"\x12", b"\x4a"
_VALUES, _SHAPE = b"\x0a", b"\x1a"
"""Tags of the fields of `_record.proto`."""


def encode_recordio(
    outputs: Mapping[str, Tensor],
    uids: Sequence[str | None] | None = None,
    metadata: Sequence[str | None] | None = None,
) -> bytes:
    """A framed record for each row of the outputs, with the request's uid and metadata where given."""
    rows = len(next(iter(outputs.values())))
    if not rows:
        return b""
    numeric = {name: output for name, output in outputs.items() if output.dtype.kind not in "OUS"}
    texts = {name: output for name, output in outputs.items() if name not in numeric}
    labels = _numeric_labels(numeric, rows)
    if not texts and uids is None and metadata is None:
        return _frame_alike(labels)
    records = [row.tobytes() for row in labels]
    for name, output in texts.items():
        entries = [_entry(name, _delimited(_BYTES, _texts(row))) for row in output.reshape(rows, -1)]
        records = [record + entry for record, entry in zip(records, entries, strict=True)]
    for tag, values in ((_UID, uids), (_METADATA, metadata)):
        if values is not None:
            records = [
                r if v is None else r + _delimited(tag, v.encode()) for r, v in zip(records, values, strict=True)
            ]
    return b"".join(map(frame, records))


def frame(payload: bytes) -> bytes:
    """One whole record in its frame."""
    return MAGIC + len(payload).to_bytes(4, "little") + payload + bytes(-len(payload) % 4)


def _frame_alike(records: Tensor) -> bytes:
    """PERF: records of one length are framed in one step."""
    rows, length = records.shape
    frames = np.zeros((rows, HEADER_BYTES + length + -length % 4), np.uint8)
    frames[:, :HEADER_BYTES] = np.frombuffer(MAGIC + length.to_bytes(4, "little"), np.uint8)
    frames[:, HEADER_BYTES : HEADER_BYTES + length] = records
    return frames.tobytes()


def _numeric_labels(outputs: Mapping[str, Tensor], rows: int) -> Tensor:
    """The label entries of all rows as bytes, `[rows, length]`: only the values differ from row to row."""
    blocks = [np.empty((rows, 0), np.uint8)]
    for name, output in outputs.items():
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.ascontiguousarray(output, "<f4").reshape(rows, -1).view(np.uint8)
        width = values.shape[1]
        shape = _delimited(_SHAPE, b"".join(map(_varint, output.shape[1:]))) if output.ndim > 2 else b""
        empty = _delimited(_VALUES, bytes(width)) if width else b""
        entry = _entry(name, _delimited(_FLOAT32, empty + shape))
        tail = len(shape)
        head = len(entry) - tail - width
        blocks += [_repeat(entry[:head], rows), values, _repeat(shape, rows)]
    return np.concatenate(blocks, axis=1)


def _repeat(data: bytes, rows: int) -> Tensor:
    return np.broadcast_to(np.frombuffer(data, np.uint8), (rows, len(data)))


def _entry(name: str, value: bytes) -> bytes:
    return _delimited(_LABEL, _delimited(_KEY, name.encode()) + _delimited(_VALUE, value))


def _texts(row: Tensor) -> bytes:
    items = [item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item for item in row.tolist()]
    return b"".join(_delimited(_VALUES, item) for item in items)


def _delimited(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
