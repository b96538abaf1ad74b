"""Which of the formats a body is in whose sender does not say: boto3 sends no Content-Type unless it is given one."""

import re

from adapters._recordio import MAGIC
from gateway.types import TensorSpec

_LEADING = b" \t\r\n\xef\xbb\xbf"
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_DRAWINGS = (b"<svg", b"<?xml", b"<!--", b"<!DOCTYPE svg")
_LOOKED_AT = 4096
_LIBSVM = re.compile(rb"\s*(?:[-+.0-9eE]+[ \t]+)?[0-9]+:[-+.0-9]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def sniff(body: bytes, spec: TensorSpec) -> str:
    """The media type that the body looks like, for a model whose first input is that; empty if like none."""
    if body.startswith(b"\x93NUMPY"):
        return "application/x-npy"
    if body.startswith(b"PK\x03\x04"):
        return "application/x-npz"
    if body.startswith(MAGIC):
        return "application/x-recordio-protobuf"
    start = body[:_LOOKED_AT].lstrip(_LEADING)
    if spec.media == "image" and (body.startswith(_IMAGES) or _is_webp(body) or start.startswith(_DRAWINGS)):
        return "image/*"
    if start[:1] in (b"{", b"["):
        return "application/json"
    if _CONTROL.search(start):
        return ""
    if spec.dtype != "string" and _LIBSVM.match(start):
        return "text/libsvm"
    return "text/csv"


def _is_webp(body: bytes) -> bool:
    return body[:4] == b"RIFF" and body[8:12] == b"WEBP"
