"""The parts of a PNG or JPEG file that decide its pixels, without the others.

Pillow reads every part, the texts, profiles, comments and animations too: a file of 60 KB may hold 60 MB of packed
text, and a file of 6 MB half a million parts.
Source: W3C PNG specification, 5 and 11; ITU-T T.81 (JPEG), B.1 and B.2.
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


class PartsError(Exception):
    """Why a file cannot be taken apart; the text completes "item 3 is ..."."""


def lean(data: bytes) -> bytes:
    """The file without what does not show. Raises PartsError."""
    parts = _png_parts(data) if data.startswith(PNG_MAGIC) else _jpeg_parts(data)
    return b"".join(parts)


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
