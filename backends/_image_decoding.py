"""PNG and JPEG to pixels, with the size known and judged before anything is decoded.

The two formats' own classes are used rather than `Image.open`, which loads plugins for fifty others and has one limit
on pixels for the whole process.
"""

import io
from collections.abc import Iterable
from typing import Literal

import numpy as np
from msgspec import Struct
from PIL import Image, ImageOps
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from backends._image_parts import JPEG_MAGIC, PNG_MAGIC, PartsError, lean
from gateway.types import Tensor

Resize = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Fit = Literal["stretch", "crop", "pad"]

MOST_PIXELS = 89_000_000
"""Pillow warns about anything larger wherever it crops."""

_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_FORMATS = ((PNG_MAGIC, PngImageFile), (JPEG_MAGIC, JpegImageFile))


class ImageError(Exception):
    """Why bytes are no usable image; the text completes "item 3 is ..."."""


class Frame(Struct, frozen=True):
    """What every image is made into."""

    size: tuple[int, int] | None
    """Height and width; None keeps the image's own."""
    channels: int
    resize: Resize
    fit: Fit
    background: tuple[int, int, int]


def header(data: bytes) -> ImageFile:
    """The image with its size known and its pixels not yet decoded. Raises ImageError."""
    for magic, kind in _FORMATS:
        if data.startswith(magic):
            try:
                return kind(io.BytesIO(lean(data)))
            except PartsError as error:
                raise ImageError(str(error)) from None
            except Exception:
                # Pillow raises whatever its parsers stumble over: SyntaxError, OSError, ValueError, struct.error ...
                raise ImageError("damaged or cut short") from None
    raise ImageError("neither a PNG nor a JPEG image")


def count_pixels(images: Iterable[ImageFile], frame: Frame) -> int:
    """The pixels that are made of these images: each is decoded, and then as large as the frame."""
    height, width = frame.size or (0, 0)
    return sum(max(image.width * image.height, height * width) for image in images)


def pixels(image: ImageFile, frame: Frame) -> Tensor:
    """The decoded image as uint8. Shapes: [height, width, channels]. Raises ImageError."""
    try:
        image.load()
        fitted = _fitted(_coloured(_upright(image), frame), frame)
    except Exception:
        raise ImageError("damaged or cut short") from None
    array = np.asarray(fitted)
    return array if array.ndim == 3 else array[:, :, np.newaxis]


def _upright(image: ImageFile) -> Image.Image:
    """As the camera was held, if its EXIF data says so."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        # The pixels are sound; only what is said about them is not.
        return image


def _coloured(image: Image.Image, frame: Frame) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = _eight_bits(image)
    if frame.channels == 4:
        return image.convert("RGBA")
    if image.has_transparency_data:
        backdrop = Image.new("RGBA", image.size, (*frame.background, 255))
        image = Image.alpha_composite(backdrop, image.convert("RGBA")).convert("RGB")
    return image.convert("L" if frame.channels == 1 else "RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Pillow's own conversion of 16-bit grey cuts everything above 255 off."""
    wide = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((wide * 255 + 32_767) // 65_535).astype(np.uint8))


def _fitted(image: Image.Image, frame: Frame) -> Image.Image:
    if frame.size is None or image.size == frame.size[::-1]:
        return image
    size, method = frame.size[::-1], _RESAMPLING[frame.resize]
    if frame.fit == "crop":
        return ImageOps.fit(image, size, method)
    if frame.fit == "pad":
        return _padded(image, size, frame)
    return image.resize(size, method)


def _padded(image: Image.Image, size: tuple[int, int], frame: Frame) -> Image.Image:
    factor = min(size[0] / image.width, size[1] / image.height)
    width, height = max(round(image.width * factor), 1), max(round(image.height * factor), 1)
    canvas = Image.new("RGB", size, frame.background).convert(image.mode)
    inside = image.resize((width, height), _RESAMPLING[frame.resize])
    canvas.paste(inside, ((size[0] - width) // 2, (size[1] - height) // 2))
    return canvas
