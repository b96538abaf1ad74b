"""WebP images: lossy, lossless, transparent, turned, animated, damaged and too large."""

import io
import struct

import numpy as np
import pytest
from images import RGB, colours, encoded, see, spec
from PIL import Image

from backends._image_parts import PartsError, lean, webp_size
from gateway.errors import InvalidTensor

ANY_SIZE = spec(None, None, None, 3)


def webp(pixels: np.ndarray = RGB, **options: object) -> bytes:
    """Those pixels, exactly."""
    return encoded(pixels, "WEBP", **{"lossless": True, "exact": True, **options})


def animation(count: int, side: int = 8) -> bytes:
    """So many pictures, the first one of noise."""
    file = io.BytesIO()
    first, *others = [
        Image.fromarray(colours(side, side) if not number else np.full((side, side, 3), number % 256, np.uint8))
        for number in range(count)
    ]
    first.save(file, "WEBP", save_all=True, append_images=others, duration=10, lossless=True)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """One part of a WebP file."""
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def file(*chunks: bytes) -> bytes:
    """A WebP file of those parts."""
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def test_lossless() -> None:
    """The pixels are those that were written."""
    assert see(ANY_SIZE, webp()).tolist() == [RGB.tolist()]


def test_lossy() -> None:
    """A photo is about what it was."""
    seen = see(ANY_SIZE, encoded(np.full((20, 30, 3), (200, 30, 90), np.uint8), "WEBP", quality=90))
    assert seen.shape == (1, 20, 30, 3)
    assert abs(seen.astype(int) - (200, 30, 90)).max() <= 8


def test_transparent() -> None:
    """Transparent pixels show the background."""
    half = np.array([[[255, 0, 0, 255], [255, 0, 0, 0]]], np.uint8)
    assert see(ANY_SIZE, webp(half), background=[0, 255, 0]).ravel().tolist() == [255, 0, 0, 0, 255, 0]


def test_turned() -> None:
    """What EXIF data says of the camera is followed."""
    exif = Image.Exif()
    exif[0x0112] = 6
    assert see(ANY_SIZE, webp(exif=exif))[0].tolist() == np.rot90(RGB, -1).tolist()


@pytest.mark.parametrize("count", [2, 300])
def test_animated(count: int) -> None:
    """Of an animation the first picture is seen, and the others are not even handed on."""
    moving = animation(count)
    assert see(ANY_SIZE, moving).tolist() == [colours(8, 8).tolist()]
    assert lean(moving).count(b"ANMF") == 1


@pytest.mark.parametrize("options", [{"lossless": True}, {"lossless": False}, {"xmp": b"x" * 999, "lossless": True}])
def test_size_by_the_header(options: dict[str, object]) -> None:
    """Width and height are known before anything is decoded, in each of the three forms of the header."""
    assert webp_size(encoded(colours(13, 29), "WEBP", **options)) == (29, 13)


def test_what_does_not_show_is_left_out() -> None:
    """Texts and profiles go, and the pixels are the same."""
    full = webp(xmp=b"<x/>" * 1000, icc_profile=b"p" * 999)
    assert len(lean(full)) < 300
    assert see(ANY_SIZE, full).tolist() == [RGB.tolist()]


HUGE = chunk(b"VP8X", bytes(4) + b"\xff\x3f\0" + b"\xff\x3f\0")


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (webp(colours(64, 64))[:-300], "damaged or cut short"),
        (webp()[:20], "damaged or cut short"),
        (b"RIFF\0\0\0\0WEBP", "damaged or cut short"),
        (b"RIFF\0\0\0\0WAVEfmt ", "no PNG, JPEG, WebP or SVG image"),
        (file(chunk(b"VP8L", bytes(20))), "damaged or cut short"),
        (file(chunk(b"ABCD", bytes(20))), "damaged or cut short"),
        (file(HUGE, chunk(b"VP8L", b"")), "a WebP image of 16384 x 16384 pixels; at most 16777216 are taken"),
        (file(chunk(b"VP8L", b"\x2f" + b"\xff" * 9)), "a WebP image of 16384 x 16384 pixels"),
        (file(chunk(b"VP8 ", bytes(3) + b"\x9d\x01\x2a\xff\x3f\xff\x3f")), "a WebP image of 16383 x 16383 pixels"),
    ],
)
def test_refusals(item: bytes, said: str) -> None:
    """Damaged and huge files are refused, and named."""
    with pytest.raises(InvalidTensor, match=f"item 1 is {said}"):
        see(ANY_SIZE, encoded(RGB), item)


def test_too_many_parts() -> None:
    """Each part costs time."""
    with pytest.raises(PartsError, match="made of more than 65536 parts"):
        lean(file(*[chunk(b"junk", b"")] * 70_000))


def test_the_budget_counts_the_canvas() -> None:
    """A large canvas with a tiny picture on it is as large as it says."""
    small = animation(2)
    at = small.index(b"VP8X") + 8 + 4
    large = small[:at] + b"\x9f\x0f\0" * 2 + small[at + 6 :]
    with pytest.raises(InvalidTensor, match="item 0 has 4000 x 4000 pixels; at most 1000000 in all"):
        see(ANY_SIZE, large, max_pixels=1_000_000)
