"""Draws SVG images in a process of its own: run by path, it knows nothing of the gateway.

Files come on standard input, each behind its length; PNG images go to standard output the same way, or the reason why
one is not drawn, which is the last. By then the process may open no file and no connection, whatever an image says.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from xml.parsers import expat

TYPE_CHECKING = False  # PERF: typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

MOST_DEPTH = 128
"""NOTE: resvg recurses; some 800 levels end the process."""
MOST_ELEMENTS = 100_000
DPI = 96.0
"""Of lengths in millimetres, inches and points, as CSS has it."""

DRAWN, REFUSED = b"+", b"-"

_NOT_DRAWN = {
    "image": "pictures inside of it are not drawn",
    "feImage": "pictures inside of it are not drawn",
    "foreignObject": "other documents inside of it are not drawn",
    "text": "letters are drawn as paths only",
}
"""Elements that would need files, fonts or a browser; without them the image would not be what its author saw."""


class Refused(Exception):
    """Why an image is not drawn; completes "item 3 is ..."."""


def check(text: str) -> None:
    """Raises Refused for what cannot be drawn safely, or not as it was meant."""
    depth = elements = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth, elements = depth + 1, elements + 1
        local = name.rpartition(":")[2]
        if local in _NOT_DRAWN:
            raise Refused(f"an SVG image with <{local}>: {_NOT_DRAWN[local]}")
        if depth > MOST_DEPTH:
            raise Refused(f"an SVG image nested more than {MOST_DEPTH} elements deep")
        if elements > MOST_ELEMENTS:
            raise Refused(f"an SVG image of more than {MOST_ELEMENTS} elements")

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    def entity(*_: object) -> None:
        raise Refused("an SVG image that declares entities, which are not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise Refused(f"an SVG image that is no XML: {error}") from None


def draw(data: bytes, render: Callable[..., bytes]) -> bytes:
    """The image as PNG, at its own size. Raises Refused."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        raise Refused("an SVG image that is not in UTF-8") from None
    check(text)
    try:
        return render(svg_string=text, skip_system_fonts=True, dpi=DPI)
    except ValueError as error:
        raise Refused(f"an SVG image that cannot be drawn: {str(error)[:100]}") from None


def count_pixels(png: bytes) -> int:
    """Of a PNG, by its header."""
    width, height = struct.unpack(">2I", png[16:24])
    return int(width * height)


def confine(megabytes: int, cpu_seconds: int) -> None:
    """No more memory and time than that, and no new file or connection."""
    for kind, most in (
        (resource.RLIMIT_AS, megabytes << 20),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def serve(source: BinaryIO, sink: BinaryIO, render: Callable[..., bytes], most_pixels: int) -> None:
    """Draw image after image, until one is refused."""
    while head := source.read(4):
        try:
            png = draw(source.read(int.from_bytes(head, "big")), render)
            most_pixels -= count_pixels(png)
            if most_pixels < 0:
                raise Refused("an SVG image of more pixels than are taken at once")
        except Refused as error:
            sink.write(REFUSED + str(error).encode())
            return
        sink.write(DRAWN + len(png).to_bytes(4, "big") + png)
        sink.flush()


def main() -> None:
    """Arguments: where resvg_py lies, megabytes of memory, seconds of CPU time, pixels."""
    packages, megabytes, seconds, pixels = sys.argv[1], *map(int, sys.argv[2:5])
    sys.path.append(packages)
    from resvg_py import svg_to_bytes

    os.nice(5)
    confine(megabytes, seconds)
    serve(sys.stdin.buffer, sys.stdout.buffer, svg_to_bytes, pixels)


if __name__ == "__main__":
    main()
