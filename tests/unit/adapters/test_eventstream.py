"""Event stream frames are those that botocore reads."""

import base64
import json
import struct
import zlib

import pytest

from adapters._eventstream import encode_exception, encode_part

HI = (
    "0000006b0000005999777065"
    "0b3a6576656e742d7479706507000b5061796c6f616450617274"
    "0d3a636f6e74656e742d747970650700186170706c69636174696f6e2f6f637465742d73747265616d"
    "0d3a6d6573736167652d747970650700056576656e74"
    "6869f0e10a16"
)
BROKEN = (
    "AAAApQAAAF5RNrN8DzpleGNlcHRpb24tdHlwZQcAEE1vZGVsU3RyZWFtRXJyb3INOmNvbnRlbnQtdHlwZQcAEGFwcGxpY2F0aW9uL2pzb24NOm1l"
    "c3NhZ2UtdHlwZQcACWV4Y2VwdGlvbnsiTWVzc2FnZSI6ImJhY2tlbmQgZmFpbGVkIiwiRXJyb3JDb2RlIjoiU3RyZWFtQnJva2VuIn3Za8IB"
)


def read(stream: bytes) -> list[tuple[dict[str, str], bytes]]:
    """Headers and payload of each frame, with every length and checksum verified."""
    frames = []
    while stream:
        total, length, crc = struct.unpack(">III", stream[:12])
        assert crc == zlib.crc32(stream[:8])
        assert struct.unpack(">I", stream[total - 4 : total])[0] == zlib.crc32(stream[: total - 4])
        frames.append((_headers(stream[12 : 12 + length]), stream[12 + length : total - 4]))
        stream = stream[total:]
    return frames


def _headers(data: bytes) -> dict[str, str]:
    headers = {}
    while data:
        name, data = data[1 : 1 + data[0]].decode(), data[1 + data[0] :]
        assert data[0] == 7
        size = int.from_bytes(data[1:3], "big")
        headers[name], data = data[3 : 3 + size].decode(), data[3 + size :]
    return headers


def test_part() -> None:
    """A part is the frame that the service sends, to the byte."""
    assert encode_part(b"hi").hex() == HI


def test_exception() -> None:
    """An error in a stream is the frame that botocore raises EventStreamError for."""
    assert base64.b64decode(BROKEN) == encode_exception("backend failed", "StreamBroken")


def test_other_exception() -> None:
    """The name of the exception and any text travel in the frame."""
    [(headers, payload)] = read(encode_exception('say "é"', "X", "InternalStreamFailure"))
    assert headers[":exception-type"] == "InternalStreamFailure"
    assert json.loads(payload) == {"Message": 'say "é"', "ErrorCode": "X"}


@pytest.mark.parametrize(("size", "frames"), [(0, 1), (1, 1), (16 << 20, 1), ((16 << 20) + 1, 2)])
def test_large_part(size: int, frames: int) -> None:
    """A part that is too large for a client comes in several frames."""
    payload = b"x" * size
    parts = read(encode_part(payload))
    assert frames == len(parts)
    assert payload == b"".join(data for _, data in parts)
    assert {"PayloadPart"} == {headers[":event-type"] for headers, _ in parts}
