"""An answer in the form and the media type that the caller accepts.

Source: Amazon SageMaker developer guide, "Common data formats for inference"; the deserializers of the sagemaker SDK
for what clients can read: a bare Content-Type, a line feed after every record, never a blank line.
"""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import orjson

from adapters._csv import encode_csv
from adapters._jsonlines import encode_records, encode_rows
from adapters._npy import encode_npy
from adapters._ragged import own_rows
from adapters._recordio_labels import encode_recordio
from adapters._tensorjson import dump
from adapters.sagemaker.forms import View
from gateway.errors import NotAcceptable
from gateway.types import Tensor

JSON = "application/json"
JSONLINES = "application/jsonlines"
CSV = "text/csv"
RECORDIO = "application/x-recordio-protobuf"
NPY = "application/x-npy"

_ALIASES = {
    "application/x-jsonlines": JSONLINES,
    "application/jsonl": JSONLINES,
    "application/x-ndjson": JSONLINES,
}
OFFERS = (JSON, JSONLINES, CSV, RECORDIO, NPY, *_ALIASES)
STREAMED_OFFERS = (JSONLINES, JSON, CSV, RECORDIO, *_ALIASES)
"""npy has a length in its header."""

Texts = Sequence[str | None] | None


def encode(view: View, media: str, uids: Texts = None, metadata: Texts = None) -> bytes:
    """The whole answer. Raises NotAcceptable where the outputs cannot be written so."""
    media = _ALIASES.get(media, media)
    if media == RECORDIO:
        rows = len(next(iter(view.columns.values())))
        return encode_recordio(view.columns, _for(rows, uids), _for(rows, metadata))
    return _WRITERS[media](view)


def _for(rows: int, texts: Texts) -> Texts:
    """What the request's records carried, if there is an answer for each of them."""
    return texts if texts is not None and len(texts) == rows else None


def encode_documents(view: View, counts: Sequence[int]) -> bytes:
    """A JSON document for each that was sent, a line each: `counts` instances of the answer belong to each."""
    documents, start = [], 0
    for count in counts:
        part = {name: tensor[start : start + count] for name, tensor in view.columns.items()}
        documents.append(_json(View(part, view.top, view.one)) + b"\n")
        start += count
    return b"".join(documents)


def encode_ragged(view: View, lengths: Sequence[int], media: str) -> bytes:
    """Records without what has only filled them up, where the type's records may differ in length."""
    if _ALIASES.get(media, media) not in (JSON, JSONLINES):
        return encode(view, media)
    records = [
        b"{%b}" % b",".join(orjson.dumps(name) + b":" + dump(own, "null") for name, own in row.items())
        for row in own_rows(view.columns, lengths)
    ]
    if media != JSON:
        return b"".join([record + b"\n" for record in records])
    return (b"{%b:[%b]}" % (orjson.dumps(view.top), b",".join(records))) if view.top else b"[%b]" % b",".join(records)


# Records in parts...


class Brackets:
    """What stands around and between the records of a streamed JSON document; nothing in the other types."""

    def __init__(self, view: View, media: str) -> None:
        document = media == JSON
        self.opening = (b"[" if not view.top else b"{%b:[" % orjson.dumps(view.top)) if document else b""
        self.comma = b"," if document else b""
        self.closing = (b"]\n" if not view.top else b"]}\n") if document else b""


def encode_part(view: View, media: str) -> bytes:
    """The records of one part, to stand between Brackets."""
    if media == JSON:
        return b",".join(_records(view))
    return encode(view, media)


# One writer a media type...


def _records(view: View) -> list[bytes]:
    if view.top or len(view.columns) > 1:
        return encode_records(view.columns)
    return encode_rows(next(iter(view.columns.values())))


def _json(view: View) -> bytes:
    if view.top:
        return b"{%b:[%b]}" % (orjson.dumps(view.top), b",".join(encode_records(view.columns)))
    values = {
        name: tensor[0, ...] if view.one and len(tensor) == 1 else tensor for name, tensor in view.columns.items()
    }
    if len(values) == 1:
        return dump(next(iter(values.values())), "null")
    return b"{%b}" % b",".join(orjson.dumps(name) + b":" + dump(tensor, "null") for name, tensor in values.items())


def _jsonlines(view: View) -> bytes:
    records = encode_records(view.columns) if view.top or view.one else _records(view)
    return b"".join([record + b"\n" for record in records])


def _csv(view: View) -> bytes:
    outputs = list(view.columns.values())
    return encode_csv([output for output in outputs if output.size] or outputs[:1])


def _npy(view: View) -> bytes:
    """SPEC: the only output in its own dtype; several as the columns of one matrix."""
    outputs = list(view.columns.values())
    if len(outputs) == 1:
        return encode_npy(outputs[0])
    kinds = {"text" if output.dtype.kind in "OUS" else "number" for output in outputs}
    if len(kinds) > 1:
        raise NotAcceptable(f"{NPY} holds one kind of value, and the answer has texts and numbers; accept {JSON}")
    return encode_npy(_columns(outputs))


def _columns(outputs: list[Tensor]) -> Tensor:
    return np.concatenate([output.reshape(len(output), prod(output.shape[1:])) for output in outputs], axis=1)


_WRITERS: dict[str, Callable[[View], bytes]] = {JSON: _json, JSONLINES: _jsonlines, CSV: _csv, NPY: _npy}
