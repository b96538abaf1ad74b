"""Drawings: SVG images as a model sees them, and what they may not do."""

import asyncio
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from images import RGB, encoded, see, spec

from backends import _svg, _svg_child
from gateway.errors import InvalidTensor, Overloaded

ANY_SIZE = spec(None, None, None, 3)
SVG = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
RED = [[255, 0, 0]]


def svg(inside: str, size: str = 'width="4" height="2"', head: str = "") -> bytes:
    """A drawing."""
    return f"{head}<svg {SVG} {size}>{inside}</svg>".encode()


def rect(**attributes: Any) -> str:
    """A rectangle from the top left corner, red if nothing else is said."""
    given = {"width": 4, "height": 2, "fill": "red", **attributes}
    return "<rect " + " ".join(f'{name}="{value}"' for name, value in given.items()) + "/>"


# What is drawn...


@pytest.mark.parametrize(
    "size",
    [
        'width="4" height="2"',
        'viewBox="0 0 4 2"',
        'width="100%" height="100%" viewBox="0 0 4 2"',
        'width="3pt" height="1.5pt" viewBox="0 0 4 2"',
        'width="4px" height="2px" viewBox="0 0 400 200"',
    ],
)
def test_sizes(size: str) -> None:
    """A drawing has its own size: in pixels, in other lengths at 96 to the inch, or its view box."""
    assert see(ANY_SIZE, svg(rect(width=400, height=200), size)).tolist() == [[RED * 4] * 2]


def test_transparency() -> None:
    """Where nothing is drawn the background shows."""
    seen = see(ANY_SIZE, svg(rect(width=2)), background=[0, 255, 0])
    assert seen[0, 0].tolist() == [*RED * 2, [0, 255, 0], [0, 255, 0]]


@pytest.mark.parametrize(
    "head",
    [
        "\ufeff",
        "  \n",
        '<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n<!-- drawn by hand -->\n',
        '<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n',
    ],
)
def test_how_files_begin(head: str) -> None:
    """As drawing programs write them; a document type is not fetched."""
    assert see(ANY_SIZE, svg(rect(), head=head)).tolist() == [[RED * 4] * 2]


@pytest.mark.parametrize(
    "inside",
    [
        '<script>while (true) {}</script><script href="http://127.0.0.1:9/x.js"/>',
        "<style>@import url(file:///etc/passwd); @import 'http://127.0.0.1:9/'; rect { stroke: none }</style>",
        '<a href="javascript:alert(1)"/><use href="file:///etc/passwd#x"/><use xlink:href="http://127.0.0.1:9/#x"/>',
        '<animate attributeName="x" from="0" to="9" dur="1s"/><set attributeName="fill" to="blue"/>',
        '<g onload="alert(1)"/><title>red &amp; nothing else</title>',
    ],
)
def test_what_does_nothing(inside: str) -> None:
    """Scripts, foreign styles and links are dead letters, and the drawing is the same."""
    assert see(ANY_SIZE, svg(inside + rect())).tolist() == [[RED * 4] * 2]


def test_drawings_among_photos() -> None:
    """Each image of a request is in its place, whatever it is."""
    items = [encoded(np.zeros((2, 4, 3), np.uint8)), svg(rect()), svg(rect(fill="lime"))]
    assert see(ANY_SIZE, *items)[:, 0, 0].tolist() == [[0, 0, 0], [255, 0, 0], [0, 255, 0]]


# What is refused...


def laughs() -> str:
    """Entities that grow tenfold, nine times."""
    grown = "".join(f'<!ENTITY a{level} "' + f"&a{level - 1};" * 10 + '">' for level in range(1, 10))
    return f'<!DOCTYPE svg [<!ENTITY a0 "ha">{grown}]>'


def uses(levels: int, inside: str = "<rect/>") -> str:
    """Elements that stand for ten others, so many times."""
    grown = ""
    for level in range(1, levels):
        grown += f'<g id="u{level}">' + f'<use href="#u{level - 1}"/>' * 10 + "</g>"
    return f'<defs><g id="u0">{inside}</g>{grown}</defs><use href="#u{levels - 1}"/>'


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (svg("&a9;", head=laughs()), "an SVG image that declares entities, which are not read"),
        (
            svg("&x;", head='<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
            "an SVG image that declares entities, which are not read",
        ),
        (
            svg("", head='<!DOCTYPE svg [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]>'),
            "an SVG image that declares entities, which are not read",
        ),
        (svg('<image href="/etc/x.png"/>'), "an SVG image with <image>: pictures inside of it are not drawn"),
        (
            b'<s:svg xmlns:s="http://www.w3.org/2000/svg"><s:image href="http://127.0.0.1:9/"/></s:svg>',
            "no PNG, JPEG, WebP or SVG image",
        ),
        (
            svg('<s:image xmlns:s="http://www.w3.org/2000/svg" href="data:image/png;base64,"/>'),
            "an SVG image with <image>: pictures inside of it are not drawn",
        ),
        (svg('<filter><feImage href="/etc/x.png"/></filter>'), "an SVG image with <feImage>: pictures inside"),
        (svg("<foreignObject/>"), "an SVG image with <foreignObject>: other documents inside of it are not drawn"),
        (svg("<text>7</text>"), "an SVG image with <text>: letters are drawn as paths only"),
        (svg("<g>" * 200 + "</g>" * 200), "an SVG image nested more than 128 elements deep"),
        (svg("<g/>" * 100_001), "an SVG image of more than 100000 elements"),
        (svg(uses(9)), "an SVG image that cannot be drawn: SVG data parsing failed cause nodes limit reached"),
        (svg(rect())[:-9], "an SVG image that is no XML: "),
        (svg("&nbsp;"), "an SVG image that is no XML: undefined entity"),
        (svg("", 'width="0" height="9"'), "an SVG image that cannot be drawn: SVG has an invalid size"),
        (svg("", 'width="100000" height="100000"'), "an SVG image that takes more than 2 s or 768 MB to draw"),
        (svg(" " * (5 << 20)), "an SVG image of more than 4 MiB"),
        (b"<?xml version='1.0'?><html/>", "an SVG image that cannot be drawn"),
        (svg("").decode().encode("latin-1") + "<!-- é -->".encode("latin-1"), "an SVG image that is not in UTF-8"),
        (b"<svg", "an SVG image that is no XML: "),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value[:60],
)
def test_refusals(item: bytes, said: str) -> None:
    """What could not be drawn safely, or not as it was meant, is refused, and the item and the reason are named."""
    with pytest.raises(InvalidTensor) as caught:
        see(ANY_SIZE, encoded(RGB), svg(rect()), item)
    assert str(caught.value).startswith(f'input "x": item 2 is {said}')


def test_a_drawing_that_takes_for_ever() -> None:
    """Masks of masks are given up after two seconds of work, and others are drawn meanwhile."""

    async def run() -> list[bytes]:
        lasting = asyncio.create_task(_svg.draw([endless()], 1 << 20))
        quick = [await _svg.draw([svg(rect())], 100) for _ in range(2)]
        assert not lasting.done()
        with pytest.raises(_svg.DrawError, match="takes more than 2 s or 768 MB"):
            await lasting
        return [drawn[0][:4] for drawn in quick]

    assert asyncio.run(run()) == [b"\x89PNG"] * 2


def endless() -> bytes:
    """Masks of masks, which take hours."""
    inside = ""
    for level in range(9):
        inside += f'<mask id="m{level}">' + rect(width=900, height=900, mask=f"url(#m{level - 1})") * 9 + "</mask>"
    return svg(f'{inside}<rect width="900" height="900" mask="url(#m8)"/>', 'width="1000" height="1000"')


def test_who_is_given_up_takes_no_more_time() -> None:
    """Drawings that nobody waits for end at once, the waiting ones too, and too many at a time are refused."""

    async def run() -> bytes:
        jobs = [asyncio.create_task(_svg.draw([endless()], 1 << 20)) for _ in range(_svg.MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="8 requests wait for their SVG images to be drawn already"):
            await _svg.draw([svg(rect())], 100)
        for job in jobs:
            job.cancel()
        assert {type(one) for one in await asyncio.gather(*jobs, return_exceptions=True)} == {asyncio.CancelledError}
        [drawn] = await asyncio.wait_for(_svg.draw([svg(rect())], 100), 6)
        return drawn[:4]

    assert asyncio.run(run()) == b"\x89PNG"


def test_the_process_reaches_nothing(tmp_path: Path) -> None:
    """Once it draws, it can open no file, whatever the library would like to open."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(encoded(RGB))
    drawing = svg(f'<image href="{secret}" width="4" height="2"/>')
    plain = _confined("resvg_py.svg_to_bytes(svg_string=data.decode())", drawing, packages=True)
    assert plain[:4] == b"\x89PNG"
    assert np.array_equal(see(ANY_SIZE, plain), see(ANY_SIZE, svg("")))
    assert b"Too many open files" in _confined("open('/etc/passwd')", b"")
    assert b"Too many open files" in _confined("__import__('_socket').socket()", b"")


def _confined(script: str, data: bytes, packages: bool = False) -> bytes:
    """What the process prints, or why it ended, after it has shut itself in."""
    library = "import resvg_py; " if packages else "import _socket; "
    program = (
        f"import sys; sys.path[:0] = [{str(Path(_svg.__file__).parent)!r}, {_svg._packages()!r}]; "
        f"import _svg_child; {library}data = sys.stdin.buffer.read(); _svg_child.confine(768, 2); "
        f"sys.stdout.buffer.write({script})"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], input=data, capture_output=True, check=False)
    return done.stdout or done.stderr


def test_pixels_of_all_drawings_count() -> None:
    """A process draws no more pixels for a request than are taken."""
    with pytest.raises(InvalidTensor, match="item 2 is an SVG image of more pixels than are taken at once"):
        see(ANY_SIZE, *[svg(rect())] * 3, max_pixels=20)


def test_the_child_serves_until_one_is_refused() -> None:
    """Answers come in order, and the first reason is the last of them."""
    files = [svg(rect()), svg("<text/>"), svg(rect())]
    source = io.BytesIO(b"".join(len(file).to_bytes(4, "big") + file for file in files))
    sink = io.BytesIO()
    _svg_child.serve(source, sink, lambda **_: encoded(RGB), 100)
    assert sink.getvalue()[5:] == encoded(RGB) + b"-an SVG image with <text>: letters are drawn as paths only"
