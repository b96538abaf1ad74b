"""Images, requests and tables that are refused, and how it is said."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from images import RGB, Eye, colours, encoded, see, see_array, spec, wrap

from gateway.errors import InvalidTensor, LoadFailed
from gateway.types import TensorSpec


def damaged_pixels() -> bytes:
    """A PNG whose header is fine and whose pixels are noise."""
    data = bytearray(encoded(colours(64, 64)))
    data[200:600] = bytes(400)
    return bytes(data)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (b"", "is no PNG, JPEG, WebP or SVG image"),
        (b"plain text", "is no PNG, JPEG, WebP or SVG image"),
        (encoded(RGB, "GIF"), "is no PNG, JPEG, WebP or SVG image"),
        (encoded(RGB, "BMP"), "is no PNG, JPEG, WebP or SVG image"),
        (encoded(RGB)[:20], "is damaged or cut short"),
        (encoded(colours(64, 64))[:-300], "is damaged or cut short"),
        (encoded(colours(64, 64), "JPEG")[:-300], "is damaged or cut short"),
        (damaged_pixels(), "is damaged or cut short"),
        (b"\x89PNG\r\n\x1a\n", "is damaged or cut short"),
        (b"\xff\xd8\xff", "is damaged or cut short"),
        ("text", 'is text, but an image is binary (in JSON an image is {"b64": "..."})'),
        (3, "is int, but an image is binary"),
    ],
)
def test_what_is_no_image(item: Any, said: str) -> None:
    """The item and its fault are named; other formats and cut files are refused."""
    with pytest.raises(InvalidTensor) as caught:
        see(spec(None, 2, 3, 3), encoded(RGB), item)
    assert str(caught.value) == f'input "x": item 1 {said}'


def bomb(width: int, height: int) -> bytes:
    """A PNG that claims a size and has no pixels."""
    data = bytearray(encoded(RGB))
    data[16:24] = struct.pack(">2I", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


@pytest.mark.parametrize("size", [(10_000, 10_000), (100_000, 100_000), (2**31 - 1, 2**31 - 1), (6000, 6000)])
def test_bombs(size: tuple[int, int]) -> None:
    """A claimed size above the limit is refused before anything is decoded, without a warning."""
    with pytest.raises(InvalidTensor) as caught:
        see(spec(None, 2, 3, 3), bomb(*size))
    assert str(caught.value).startswith(f'input "x": item 0 has {size[0]} x {size[1]} pixels; at most 33554432 in all')


@pytest.mark.parametrize(
    ("config", "count", "said"),
    [
        ({"max_pixels": 17}, 3, 'input "x": item 2 has 3 x 2 pixels; at most 17 in all are taken at once'),
        ({"max_pixels": 150, "size": [10, 10]}, 2, 'input "x": item 1 has 3 x 2 pixels; at most 150 in all'),
        ({"max_images": 2}, 3, 'input "x": 3 images; at most 2 are taken at once'),
    ],
)
def test_budgets(config: dict[str, Any], count: int, said: str) -> None:
    """Pixels count as sent or as resized, whichever is more, over all images of a request."""
    with pytest.raises(InvalidTensor) as caught:
        see(spec(None, None, None, 3), *[encoded(RGB)] * count, **config)
    assert str(caught.value).startswith(said)


def test_images_of_different_sizes() -> None:
    """Without a size they cannot be one tensor."""
    with pytest.raises(InvalidTensor, match='input "x": item 1 differs in size from item 0, and no size is set'):
        see(spec(None, None, None, 3), encoded(RGB), encoded(colours(3, 3)))


def test_more_images_than_the_model_takes() -> None:
    """A model without a batch takes one image."""
    with pytest.raises(InvalidTensor, match='input "x": 2 images; the model takes one'):
        see(spec(2, 3, 3), *[encoded(RGB)] * 2, layout="nhwc")


@pytest.mark.parametrize("shape", [(2, 2), (1, 1, 1)])
def test_images_in_a_matrix(shape: tuple[int, ...]) -> None:
    """Images come one a row."""
    with pytest.raises(InvalidTensor, match="images come as a list, one a row, not as shape"):
        see_array(spec(None, 2, 3, 3), np.full(shape, encoded(RGB), object))


@pytest.mark.parametrize(
    ("declared", "config", "said"),
    [
        (spec(None, dtype="string"), {}, "image: input 'x' is string, which holds no pixels"),
        (spec(None, 2, 2, 3, dtype="bool"), {}, "image: input 'x' is bool, which holds no pixels"),
        (spec(None, 2, 2, 3, dtype="int8"), {}, "image: an int8 input cannot hold pixels from 0 to 255"),
        (spec(None, 7), {}, "image: input 'x' takes 7 values, which fits no square image; set size and channels"),
        (spec(None, 2, 2, 2), {"layout": "nhwc"}, "image: input 'x' has 2 channels; 1, 3 and 4 are possible"),
        (spec(None, 2, 2, 3), {"layout": "flat"}, "image: layout 'flat' does not fit input 'x' of rank 4"),
        (spec(None, 2, 2, 3), {"channels": 1}, "image: channels is configured as 1, but the model's input has 3"),
        (
            spec(None, 2, 2, 3),
            {"size": [3, 3]},
            "image: size is configured as (3, 3), but the model's",
        ),
        (spec(None, 3, 8, 3), {}, "image: the shape of input 'x' does not tell the layout; set layout"),
        (spec(None, None, None, None), {}, "image: the shape of input 'x' does not tell the layout; set layout"),
        (spec(None, 2, 2, 3), {"mean": [1, 2]}, "image: mean has 2 numbers; the image has 3 channels"),
        (spec(None, 2, 2, 3), {"std": [1, 0, 1]}, "image: std is 0"),
        (spec(None, 2, 2, 3), {"mean": float("nan")}, "image: scale, mean and std must be finite numbers"),
        (spec(None, 2, 2, 3), {"scale": float("inf")}, "image: scale, mean and std must be finite numbers"),
        (spec(None, 2, 2, 3), {"input": "y"}, "image: the model has no input 'y'; it has 'x'"),
    ],
)
def test_tables_that_do_not_fit(declared: TensorSpec, config: dict[str, Any], said: str) -> None:
    """A table that does not fit the model fails the load, and says why."""
    with pytest.raises(LoadFailed) as caught:
        wrap(Eye(declared), **config)
    assert str(caught.value).startswith(said)


def test_which_input() -> None:
    """Among several inputs the table must name one, by the model's name or the signature's."""
    two = Eye(spec(None, 2, 3, 3), spec(None, name="other"))
    with pytest.raises(LoadFailed, match="image: set input; the model has 'x', 'other'"):
        wrap(two)
    assert wrap(two, input="x").metadata.signatures["serving_default"].inputs["x"].media == "image"
    same_name = Eye(a={"in": spec(None, 2, 3, 3)}, b={"in": spec(None, 3, 2, 3, name="y")})
    with pytest.raises(LoadFailed, match="'in' means different inputs in different signatures"):
        wrap(same_name, input="in")
