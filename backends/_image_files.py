"""PNG, JPEG and WebP to pixels, with the size known and judged before anything is decoded.

The formats' own classes are used rather than `Image.open`, which loads plugins for fifty others and has one limit
on pixels for the whole process.
"""

import io
from collections.abc import Iterable

import numpy as np
from PIL import Image, ImageOps
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from backends._image_fitting import Frame, Placement, fitted
from backends._image_parts import JPEG_MAGIC, PNG_MAGIC, PartsError, is_webp, lean, webp_size
from gateway.types import Tensor

MOST_PIXELS = 89_000_000
"""Pillow warns about anything larger wherever it crops."""
MOST_WEBP_PIXELS = 1 << 24
"""Of one image: decoding takes 20 bytes of memory for a pixel, four times as much as other formats."""


class ImageError(Exception):
    """Why bytes are no usable image; the text completes "item 3 is ..."."""


def header(data: bytes) -> ImageFile:
    """The image with its size known and its pixels not yet decoded. Raises ImageError."""
    kind = _kind(data)
    try:
        if kind is WebPImageFile:
            _check_webp(data)
        return kind(io.BytesIO(lean(data)))
    except PartsError as error:
        raise ImageError(str(error)) from None
    except ImageError:
        raise
    except Exception:
        # Pillow raises whatever its parsers stumble over: SyntaxError, OSError, ValueError, struct.error ...
        raise ImageError("damaged or cut short") from None


def _kind(data: bytes) -> type[ImageFile]:
    if data.startswith(PNG_MAGIC):
        return PngImageFile
    if data.startswith(JPEG_MAGIC):
        return JpegImageFile
    if is_webp(data):
        return WebPImageFile
    raise ImageError("no PNG, JPEG, WebP or SVG image")


def _check_webp(data: bytes) -> None:
    """NOTE: Pillow's plugin makes room for the pixels as soon as it sees the file."""
    width, height = webp_size(data)
    if width * height > MOST_WEBP_PIXELS:
        raise ImageError(f"a WebP image of {width} x {height} pixels; at most {MOST_WEBP_PIXELS} are taken")


def count_pixels(images: Iterable[ImageFile], frame: Frame) -> int:
    """The pixels that are made of these images: each is decoded, and then as large as the frame."""
    height, width = frame.size or (0, 0)
    return sum(max(image.width * image.height, height * width) for image in images)


def pixels(image: ImageFile, frame: Frame) -> tuple[Tensor, Placement]:
    """The decoded image as uint8, [height, width, channels], and where it lies in it. Raises ImageError."""
    try:
        image.load()
        inside, placement = fitted(_coloured(_upright(image), frame), frame)
    except Exception:
        raise ImageError("damaged or cut short") from None
    array = np.asarray(inside)
    return (array if array.ndim == 3 else array[:, :, np.newaxis]), placement


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
