"""PNG and JPEG files of all kinds, and how they are fitted into the model's size."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from images import RGB, colours, encoded, see, see_array, spec
from PIL import Image


def test_several_images_at_once() -> None:
    """Rows come in the order of the items, PNG beside JPEG."""
    seen = see(spec(None, 2, 3, 3), encoded(RGB), encoded(np.full((2, 3, 3), 200, np.uint8), "JPEG"))
    assert seen[0].tolist() == RGB.tolist()
    assert abs(seen[1].astype(int) - 200).max() <= 2


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_image(shape: tuple[int, ...]) -> None:
    """One image may come alone, in a list, or as a column."""
    array = np.full(shape, encoded(RGB), object)
    assert see_array(spec(None, 2, 3, 3), array).tolist() == [RGB.tolist()]


def test_no_image() -> None:
    """An empty list is an empty batch."""
    assert see(spec(None, 2, 3, 3)).shape == (0, 2, 3, 3)


def palette(transparent: bool) -> bytes:
    """Red and blue by palette; red transparent if so wished."""
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    return encoded(image, **({"transparency": 0} if transparent else {}))


def sixteen_bits() -> bytes:
    """Black, half and white in 16 bits, written by hand."""
    rows = b"\0" + struct.pack(">3H", 0, 32768, 65535)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">2I5B", 3, 1, 16, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


HALF_RED = np.array([[[255, 0, 0, 255], [255, 0, 0, 0]]], np.uint8)
GREEN = {"background": [0, 255, 0]}


@pytest.mark.parametrize(
    ("data", "channels", "config", "expected"),
    [
        (palette(False), 3, {}, [255, 0, 0, 0, 0, 255]),
        (palette(True), 3, GREEN, [0, 255, 0, 0, 0, 255]),
        (encoded(HALF_RED), 3, GREEN, [255, 0, 0, 0, 255, 0]),
        (encoded(HALF_RED), 3, {}, [255, 0, 0, 0, 0, 0]),
        (encoded(HALF_RED), 4, GREEN, [255, 0, 0, 255, 255, 0, 0, 0]),
        (encoded(np.array([[[9, 255], [9, 0]]], np.uint8)), 1, {"background": [7, 7, 7]}, [9, 7]),
        (encoded(np.array([[10, 250]], np.uint8)), 3, {}, [10, 10, 10, 250, 250, 250]),
        (encoded(np.array([[10, 250]], np.uint8)), 4, {}, [10, 10, 10, 255, 250, 250, 250, 255]),
        (encoded(np.array([[0, 255]], np.uint8), mode="1"), 1, {}, [0, 255]),
        (encoded(np.array([[[255, 0, 0]]], np.uint8)), 1, {}, [76]),
        (sixteen_bits(), 1, {}, [0, 128, 255]),
        (sixteen_bits(), 3, {}, [0, 0, 0, 128, 128, 128, 255, 255, 255]),
    ],
    ids=[
        *("palette", "transparent palette", "alpha", "alpha on black", "rgba", "grey alpha", "grey as rgb"),
        *("grey as rgba", "bits", "rgb as grey", "16 bits", "16 bits as rgb"),
    ],
)
def test_pixel_kinds(data: bytes, channels: int, config: dict[str, Any], expected: list[int]) -> None:
    """Whatever a file holds, the model sees its channels; transparent pixels show the background."""
    assert see(spec(None, None, None, channels), data, **config).ravel().tolist() == expected


def test_cmyk() -> None:
    """A JPEG for printers becomes RGB."""
    seen = see(spec(None, 8, 8, 3), encoded(np.full((8, 8, 3), (200, 30, 30), np.uint8), "JPEG", mode="CMYK"))
    assert abs(seen.astype(int) - (200, 30, 30)).max() <= 8


def test_orientation() -> None:
    """A image that says it lies on its side is stood up."""
    exif = Image.Exif()
    exif[0x0112] = 6
    seen = see(spec(None, None, None, 3), encoded(RGB, exif=exif))
    assert seen[0].tolist() == np.rot90(RGB, -1).tolist()


def test_a_broken_orientation_is_ignored() -> None:
    """Nonsense in the EXIF data does not cost the image."""
    assert see(spec(None, None, None, 3), encoded(RGB, exif=b"Exif\0\0nonsense")).tolist() == [RGB.tolist()]


WIDE = np.concatenate([np.full((2, 2), 10), np.full((2, 4), 100), np.full((2, 2), 200)], 1).astype(np.uint8)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [[10, 100, 100, 200]] * 4),
        ({"fit": "crop"}, [[100] * 4] * 4),
        ({"fit": "pad", "background": [5, 5, 5]}, [[5] * 4, [10, 100, 100, 200], [5] * 4, [5] * 4]),
    ],
)
def test_fits(config: dict[str, Any], expected: list[list[int]]) -> None:
    """A image of other proportions is stretched, cropped or padded to the model's size."""
    assert see(spec(None, 4, 4), encoded(WIDE), layout="nhw", resize="box", **config)[0].tolist() == expected


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("size", [(1, 500), (500, 1)])
def test_extreme_proportions(fit: str, size: tuple[int, int]) -> None:
    """A line of pixels is a image too."""
    assert see(spec(None, 4, 4), encoded(np.zeros(size, np.uint8)), layout="nhw", fit=fit).shape == (1, 4, 4)


@pytest.mark.parametrize("resize", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_resizing_as_pillow_does(resize: str) -> None:
    """Sizes are changed by the named filter."""
    pixels = colours(9, 7)
    expected = Image.fromarray(pixels).resize((6, 5), Image.Resampling[resize.upper()])
    assert see(spec(None, 5, 6, 3), encoded(pixels), resize=resize)[0].tolist() == np.asarray(expected).tolist()
