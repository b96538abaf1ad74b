"""One line of the payload log: a request and its answer, with nothing in it that opens anything."""

import base64
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import Struct

KEPT_HEADERS = frozenset(
    name.encode("ascii")
    for name in (
        "accept",
        "canary",
        "content-encoding",
        "content-type",
        "inference-header-content-length",
        "x-amzn-sagemaker-target-model",
        "x-tensorgate-service",
    )
)
"""All others stay out, whatever they are called: a list of secret ones would miss the next."""
KEPT_QUERY = frozenset({"json", "include_outputs", "detail", "stream", "outputs"})
"""Likewise for parameters of the query, where signatures and keys may stand."""

REDACTED = "[redacted]"

Ending = Literal["whole", "left", "broken"]

_EVENTS = "text/event-stream"
_DATA = b"data:"
_PLAIN_LINES = (b"event:", b"id:", b"retry:", b":")
"""Of server-sent events: lines in which nobody's values stand."""


class Content(Struct, frozen=True, omit_defaults=True):
    """A body: its text, or in Base64 what is none."""

    text: str | None = None
    base64: str | None = None
    cut: bool = False
    """It was longer than may be kept, or could not be redacted: then it is not here as a whole."""

    def bytes(self) -> bytes:
        """The body itself."""
        if self.base64 is not None:
            return base64.b64decode(self.base64)
        return (self.text or "").encode()


class PayloadRecord(Struct, frozen=True, omit_defaults=True):
    """A request that was answered."""

    time: datetime
    id: str
    method: str
    path: str
    status: int
    """HTTP's, or gRPC's."""
    ms: float
    request: Content = Content()
    answer: Content = Content()
    query: str = ""
    headers: dict[str, str] = {}
    media_type: str = ""
    """Of the answer."""
    ended: Ending = "whole"
    """Why an answer in parts ended: it was over, its client left, or it broke off."""
    protocol: str = ""
    service: str = ""
    operation: str = ""
    version: int = 0
    variant: str = ""


def kept_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers that are needed to ask again."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in KEPT_HEADERS}


def kept_query(query: str) -> str:
    """The parameters that are needed to ask again."""
    if not query:
        return ""
    return urlencode([pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] in KEPT_QUERY])


def content(body: bytes, most: int, redact: Collection[str]) -> Content:
    """The body as it is kept: at most so many bytes, and without the values of the named fields."""
    if redact and body:
        if len(body) > most:
            return Content(cut=True)
        try:
            body = msgspec.json.encode(_redacted(msgspec.json.decode(body), redact))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Content(cut=True)  # nobody knows where in it the fields are
    cut = len(body) > most
    body = body[:most]
    try:
        return Content(text=body.decode(), cut=cut)
    except UnicodeDecodeError:
        return Content(base64=base64.b64encode(body).decode("ascii"), cut=cut)


def streamed(body: bytes, media_type: str, most: int, redact: Collection[str], cut: bool) -> Content:
    """An answer that came in parts, as it is kept: of one whose values are redacted, each line is read for itself."""
    if not redact or not body:
        kept = content(body, most, ())
        return Content(kept.text, kept.base64, cut or kept.cut)
    lines = body.split(b"\n")
    if cut:
        del lines[-1]  # it may be half of one
    try:
        return Content("\n".join([_redacted_line(line, media_type, redact).decode() for line in lines]), cut=cut)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Content(cut=True)


def _redacted_line(line: bytes, media_type: str, redact: Collection[str]) -> bytes:
    """Raises DecodeError for a line in which values may stand that are no JSON's."""
    before, text = b"", line
    if media_type.startswith(_EVENTS):
        if line.startswith(_PLAIN_LINES):
            return line
        if line.startswith(_DATA):
            before, text = b"data: ", line[len(_DATA) :]
    text = text.strip()
    if not text or text == b"[DONE]":
        return line
    return before + msgspec.json.encode(_redacted(msgspec.json.decode(text), redact))


def _redacted(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {key: REDACTED if key in names else _redacted(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_redacted(one, names) for one in value]
    return value
