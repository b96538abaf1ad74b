"""The parts of a PNG, JPEG or WebP file that decide its pixels, without the others.

Pillow reads every part, the texts, profiles, comments and animations too: a file of 60 KB may hold 60 MB of packed
text, and a file of 6 MB half a million parts.
Of an animation the first picture is left.
Source: W3C PNG specification, 5 and 11; ITU-T T.81 (JPEG), B.1 and B.2; RFC 9649 (WebP), 2.
"""

import re
from collections.abc import Iterator

MOST_PARTS = 65_536
MOST_SCANS = 100
"""Of a progressive JPEG, which has about ten. Each is a pass over all of the image's coefficients."""

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
JPEG_MAGIC = b"\xff\xd8\xff"

_CHUNKS = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"eXIf"))

_SOS = 0xDA
_BARE = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
"""Markers that no length follows."""
_SPOKEN = frozenset((0xFE, *(0xE0 + kind for kind in range(16) if kind not in (0, 1, 14))))
"""Comments, and what applications add; all but JFIF's, Exif's and Adobe's own, which tell how to see the image."""
_FILL = re.compile(rb"\xff*+")


_WEBP_CHUNKS = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"EXIF"))
_WEBP_PICTURES = frozenset((b"VP8 ", b"VP8L", b"ANMF"))


class PartsError(Exception):
    """Why a file cannot be taken apart; the text completes "item 3 is ..."."""


def lean(data: bytes) -> bytes:
    """The file without what does not show. Raises PartsError."""
    if is_webp(data):
        parts = b"".join(_webp_parts(data))
        return b"RIFF" + (4 + len(parts)).to_bytes(4, "little") + b"WEBP" + parts
    return b"".join(_png_parts(data) if data.startswith(PNG_MAGIC) else _jpeg_parts(data))


def is_webp(data: bytes) -> bool:
    """Whether the file begins as WebP images do."""
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def webp_size(data: bytes) -> tuple[int, int]:
    """Width and height of a WebP image, as its first part has them. Raises PartsError."""
    kind, body = data[12:16], data[20:30]
    if len(body) == 10:
        if kind == b"VP8X":
            return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
        if kind == b"VP8 ":
            return int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF
        if kind == b"VP8L":
            bits = int.from_bytes(body[1:5], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    raise PartsError("damaged or cut short")


def _png_parts(data: bytes) -> Iterator[bytes]:
    yield PNG_MAGIC
    at = len(PNG_MAGIC)
    for _ in range(MOST_PARTS):
        size = int.from_bytes(data[at : at + 4], "big")
        kind, end = data[at + 4 : at + 8], at + 12 + size
        if kind in _CHUNKS and (size or kind != b"IDAT"):
            yield data[at:end]
        if kind == b"IEND" or end >= len(data):
            return
        at = end
    raise PartsError(f"made of more than {MOST_PARTS} parts")


def _jpeg_parts(data: bytes) -> Iterator[bytes]:
    at = 0
    for _ in range(MOST_PARTS):
        fill = _FILL.match(data, at)
        start = fill.end() if fill else at
        if start == at or start >= len(data):
            raise PartsError("damaged or cut short")
        marker = data[start]
        if marker == _SOS:
            if data.count(b"\xff\xda", start - 1) > MOST_SCANS:
                raise PartsError(f"made of more than {MOST_SCANS} scans")
            yield data[start - 1 :]
            return
        at = start + 1
        if marker not in _BARE:
            at += int.from_bytes(data[at : at + 2], "big")
        if marker not in _SPOKEN and marker:
            yield data[start - 1 : at]
    raise PartsError(f"made of more than {MOST_PARTS} parts")


def _webp_parts(data: bytes) -> Iterator[bytes]:
    at = 12
    has_picture = False
    for _ in range(MOST_PARTS):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        kind, end = data[at : at + 4], at + 8 + size + size % 2
        if kind in _WEBP_CHUNKS and not (kind in _WEBP_PICTURES and has_picture):
            has_picture |= kind in _WEBP_PICTURES
            yield data[at:end].ljust(end - at, b"\0") if end == len(data) + 1 else data[at:end]
        if end >= len(data):
            return
        at = end
    raise PartsError(f"made of more than {MOST_PARTS} parts")
