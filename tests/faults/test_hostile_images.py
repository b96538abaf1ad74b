"""Pictures made to hurt, sent to a running gateway: each is refused or seen for what it is, and others are served."""

import base64
import io
import shutil
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from images import encoded
from live import LiveGateway, gateway
from PIL import Image

from backends._image_decoder import AT_ONCE

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ASTRONAUT = (CONFIGS / "samples" / "astronaut.png").read_bytes()
FACE = [179.2, 82.0, 94.6, 94.6]
MOST_MEGABYTES = 200 + 350 * AT_ONCE
"""That the process has ever held: about 110 for itself, and 20 bytes for each of a WebP's 16 million pixels."""

SVG = 'xmlns="http://www.w3.org/2000/svg" width="64" height="64"'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with a detector and a model that has nothing to do with images."""
    models = tmp_path_factory.mktemp("hostile") / "models"
    for name in ("faces", "half_plus_three"):
        shutil.copytree(CONFIGS / "models" / name, models / name)
    with gateway("--models", models, "--device", "cpu") as live:
        live.wait_until("/readyz", 200)
        yield live


def chunk(kind: bytes, data: bytes) -> bytes:
    """One part of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, packed: bytes, *extras: bytes, depth: int = 1) -> bytes:
    """A grey PNG of that size, whatever its packed pixels are."""
    head = chunk(b"IHDR", struct.pack(">2I5B", width, height, depth, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(extras) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def zeros(megabytes: int) -> bytes:
    """So much nothing, packed."""
    packer = zlib.compressobj(1)
    block = bytes(1 << 20)
    return b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()


def frames(count: int) -> bytes:
    """An animated PNG."""
    control = chunk(b"acTL", struct.pack(">2I", count, 0))
    later = [chunk(b"fdAT", struct.pack(">I", number) + zlib.compress(bytes(9 * 8))) for number in range(count)]
    return png(64, 8, zlib.compress(bytes(9 * 8)), control, *later)


def moving(kind: str, count: int) -> bytes:
    """An animation of so many pictures."""
    file = io.BytesIO()
    first, *others = [Image.new("RGB", (64, 64), (number % 256, number // 256, 0)) for number in range(count)]
    first.save(file, kind, save_all=True, append_images=others, duration=10)
    return file.getvalue()


def svg(inside: str, head: str = "") -> bytes:
    """A drawing."""
    return f"{head}<svg {SVG}>{inside}</svg>".encode()


def uses(levels: int) -> str:
    """Elements that stand for ten others, so many times."""
    grown = '<g id="u0"><rect width="1" height="1"/></g>'
    for level in range(1, levels):
        grown += f'<g id="u{level}">' + f'<use href="#u{level - 1}"/>' * 10 + "</g>"
    return f'<defs>{grown}</defs><use href="#u{levels - 1}"/>'


def blurs() -> str:
    """Filters that take minutes."""
    many = '<rect width="9999" height="9999" filter="url(#f)"/>' * 2000
    return f'<filter id="f"><feTurbulence numOctaves="900"/><feGaussianBlur stdDeviation="99"/></filter>{many}'


LAUGHS = (
    "<!DOCTYPE svg [<!ENTITY a 'ha'>"
    + "".join(f"<!ENTITY {one} '{f'&{other};' * 10}'>" for one, other in zip("bcdefghij", "abcdefghi", strict=True))
    + "]>"
)
FILE_ENTITY = '<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>'


def portrait() -> Image.Image:
    return Image.open(io.BytesIO(ASTRONAUT)).convert("RGB")


def wide_grey() -> bytes:
    """In 16 bits a pixel."""
    grey = np.asarray(portrait().convert("L")).astype(np.uint16) * 257
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in grey)
    return png(512, 512, zlib.compress(rows), depth=16)


def turned() -> bytes:
    """Lying on its side, and saying so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(portrait().transpose(Image.Transpose.ROTATE_90), "JPEG", quality=95, exif=exif)


def on_nothing() -> bytes:
    """With a transparent corner far from the face."""
    image = portrait().convert("RGBA")
    image.paste((0, 0, 0, 0), (400, 400, 512, 512))
    return encoded(image)


# What is no picture, or too much of one...

BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", ""),
    "text": (lambda: b"not a picture at all", "no PNG, JPEG, WebP or SVG image"),
    "html": (lambda: b"<!DOCTYPE html><script>alert(1)</script>", "no PNG, JPEG, WebP or SVG image"),
    "gif": (lambda: moving("GIF", 3), "no PNG, JPEG, WebP or SVG image"),
    "tiff": (lambda: encoded(portrait(), "TIFF"), "no PNG, JPEG, WebP or SVG image"),
    "png-50000": (lambda: png(50_000, 50_000, zeros(298)), "has 50000 x 50000 pixels"),
    "png-60mp": (lambda: png(10_000, 6_000, zeros(8)), "has 10000 x 6000 pixels"),
    "jpeg-60mp": (lambda: encoded(Image.new("L", (10_000, 6_000)), "JPEG"), "has 10000 x 6000 pixels"),
    "webp-25mp": (lambda: encoded(Image.new("RGB", (5_000, 5_000)), "WEBP", method=0), "of 5000 x 5000 pixels"),
    "png-cut": (lambda: ASTRONAUT[:400_000], "damaged or cut short"),
    "jpeg-cut": (lambda: encoded(portrait(), "JPEG")[:9_000], "damaged or cut short"),
    "webp-cut": (lambda: encoded(portrait(), "WEBP")[:9_000], "damaged or cut short"),
    "png-header": (lambda: ASTRONAUT[:30], "damaged or cut short"),
    "svg-laughs": (lambda: svg("<desc>&j;</desc>", LAUGHS), "declares entities"),
    "svg-file": (lambda: svg("<desc>&x;</desc>", FILE_ENTITY), "declares entities"),
    "svg-image": (lambda: svg('<image href="file:///etc/passwd"/>'), "with <image>"),
    "svg-uses": (lambda: svg(uses(12)), "cannot be drawn"),
    "svg-deep": (lambda: svg("<g>" * 50_000 + "</g>" * 50_000), "nested more than 128 elements deep"),
    "svg-huge": (lambda: svg("").replace(b'"64"', b'"200000"'), "takes more than 2 s or 768 MB to draw"),
    "svg-endless": (lambda: svg(blurs()).replace(b'"64"', b'"5000"'), "takes more than 2 s or 768 MB to draw"),
}

# What is one after all...

FINE: dict[str, Callable[[], bytes]] = {
    "png-inflates": lambda: png(64, 64, zeros(300)),
    "png-animated": lambda: frames(10_000),
    "webp-animated": lambda: moving("WEBP", 200),
    "png-25mp": lambda: png(5_000, 5_000, zeros(4)),
    "webp-16mp": lambda: encoded(Image.new("RGB", (4_000, 4_000)), "WEBP", method=0),
    "svg-script": lambda: svg('<script>while (true) {}</script><rect width="9" height="9"/>'),
}

# The same face, however it is kept...

FACES: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: encoded(portrait(), "JPEG", quality=95),
    "jpeg-progressive": lambda: encoded(portrait(), "JPEG", quality=95, progressive=True),
    "jpeg-cmyk": lambda: encoded(portrait(), "JPEG", mode="CMYK", quality=95),
    "jpeg-turned": turned,
    "jpeg-grey": lambda: encoded(portrait(), "JPEG", mode="L", quality=95),
    "png-16-bits": wide_grey,
    "png-palette": lambda: encoded(portrait().quantize(256)),
    "png-transparent": on_nothing,
    "webp": lambda: encoded(portrait(), "WEBP", quality=90),
    "webp-lossless": lambda: encoded(portrait(), "WEBP", lossless=True),
}


class Others:
    """Requests that have nothing to do with pictures, one after the other, for the length of a `with` block."""

    def __init__(self, live: LiveGateway) -> None:
        self._live = live
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers: list[Any] = []

    def _ask(self) -> None:
        with httpx.Client(base_url=self._live.url, timeout=20) as client:
            while not self._over.is_set() or not self.answers:
                reply = client.post("/v1/models/half_plus_three:predict", json={"instances": [1.0]})
                self.answers.append(reply.json())
                self._over.wait(0.02)

    def __enter__(self) -> "Others":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)


def send(served: LiveGateway, picture: bytes, media: str = "image/png") -> httpx.Response:
    """The picture as a body, while others ask other things."""
    with Others(served) as others:
        headers = {"Content-Type": media}
        reply = httpx.post(f"{served.url}/services/faces/invocations", content=picture, headers=headers, timeout=30)
    assert {str(answer) for answer in others.answers} == {"{'predictions': [3.5]}"}
    return reply


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(served: LiveGateway, name: str) -> None:
    """A clear 400, while others are served."""
    make, said = BOMBS[name]
    reply = send(served, make())
    assert (reply.status_code, said in reply.text) == (400, True), reply.text


@pytest.mark.parametrize("name", FINE)
def test_fine(served: LiveGateway, name: str) -> None:
    """Odd, and yet a picture: it is seen, and there is no face in it."""
    reply = send(served, FINE[name]())
    assert (reply.status_code, reply.json()["predictions"][0]["dclasses"]) == (200, []), reply.text


@pytest.mark.parametrize("name", FACES)
def test_faces(served: LiveGateway, name: str) -> None:
    """Whatever the file's kind, the face is where it was, and the type that it is sent under does not matter."""
    for media in ("image/jpeg", "application/x-image"):
        [row] = send(served, FACES[name](), media).json()["predictions"]
        assert row["dobjects"] == [pytest.approx(FACE, abs=12)]


def test_many_bombs_in_one_request(served: LiveGateway) -> None:
    """The pixels of all pictures of a request count together, and so do its drawings."""
    large = base64.b64encode(png(5_000, 5_000, zeros(4))).decode()
    reply = httpx.post(f"{served.url}/services/faces/invocations", json={"instances": [{"b64": large}] * 3})
    assert (reply.status_code, "item 1 has 5000 x 5000 pixels" in reply.text) == (400, True), reply.text


def test_many_large_ones_at_once(served: LiveGateway) -> None:
    """They wait for each other, and hold no more memory together than a few of them do; others are served."""
    picture = FINE["webp-16mp"]()
    with ThreadPoolExecutor(8) as senders:
        replies = list(senders.map(lambda _: send(served, picture).status_code, range(8)))
    assert replies == [200] * 8


def test_what_is_left(served: LiveGateway) -> None:
    """After all of them the gateway answers, and has never held more memory than a request may take."""
    found = send(served, ASTRONAUT).json()["predictions"][0]["dobjects"]
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    peak = next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM"))
    assert (found, peak < MOST_MEGABYTES) == ([pytest.approx(FACE, abs=0.1)], True), peak
    assert "Traceback" not in served.errors()
