"""vnd.amazon.eventstream frames: how SageMaker streams an answer.

A frame is, in big endian, its length, the length of its headers, a CRC of those two, headers, payload, a CRC of it all.
Source: the event stream of botocore (botocore/eventstream.py) and its sagemaker-runtime model.
"""

from struct import Struct
from zlib import crc32

import orjson

MEDIA_TYPE = "application/vnd.amazon.eventstream"

_MOST = 16 << 20
"""Payload bytes a frame; clients refuse more than 24 MiB."""
_PRELUDE = Struct(">II")
_CRC = Struct(">I")
_STRING = 7
"""The type of a header's value."""


def _headers(kind: str, name: str, content_type: str) -> bytes:
    pairs = {f":{kind}-type": name, ":content-type": content_type, ":message-type": kind}
    return b"".join(
        bytes([len(key)]) + key.encode() + bytes([_STRING]) + len(value).to_bytes(2, "big") + value.encode()
        for key, value in pairs.items()
    )


_PART = _headers("event", "PayloadPart", "application/octet-stream")


def encode_part(payload: bytes) -> bytes:
    """A part of the model's answer, in as many frames as it needs."""
    starts = range(0, len(payload) or 1, _MOST)
    return b"".join([_frame(_PART, payload[start : start + _MOST]) for start in starts])


def encode_exception(message: str, error_code: str, name: str = "ModelStreamError") -> bytes:
    """The error that ends a stream: a client notices no other end."""
    headers = _headers("exception", name, "application/json")
    return _frame(headers, orjson.dumps({"Message": message, "ErrorCode": error_code}))


def _frame(headers: bytes, payload: bytes) -> bytes:
    prelude = _PRELUDE.pack(16 + len(headers) + len(payload), len(headers))
    crc = crc32(prelude)
    body = _CRC.pack(crc) + headers + payload
    return prelude + body + _CRC.pack(crc32(body, crc))
