"""An image brought to the size that a model takes, and places in that found again in the image."""

from typing import Literal

import numpy as np
from msgspec import Struct
from PIL import Image, ImageOps

from gateway.types import Tensor

Resize = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Fit = Literal["stretch", "crop", "pad"]

_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class Frame(Struct, frozen=True):
    """What every image is made into."""

    size: tuple[int, int] | None
    """Height and width; None keeps the image's own."""
    longest: int | None
    """The most pixels of either side, where the image keeps its own size."""
    channels: int
    resize: Resize
    fit: Fit
    background: tuple[int, int, int]


class Placement(Struct, frozen=True):
    """Where an image lies in its frame: a point of the image, times `factors`, plus `offsets`, is one of the frame."""

    size: tuple[int, int]
    """The image's own width and height, as it is held upright."""
    frame: tuple[int, int]
    """Width and height of what the model sees."""
    factors: tuple[float, float] = (1.0, 1.0)
    offsets: tuple[float, float] = (0.0, 0.0)

    def found(self, corners: Tensor) -> Tensor:
        """Boxes of the frame as boxes of the image, cut at its edges. Shapes: [n, 4] -> [n, 4], left to bottom."""
        places: Tensor = (corners - np.tile(self.offsets, 2)) / np.tile(self.factors, 2)
        return places.clip(0, np.tile(self.size, 2)).astype(np.float32)


def fitted(image: Image.Image, frame: Frame) -> tuple[Image.Image, Placement]:
    """The image at the frame's size, and where it lies in it."""
    size, method = (frame.size or _within(image.size, frame.longest))[::-1], _RESAMPLING[frame.resize]
    if image.size == size:
        return image, Placement(size, size)
    across, down = size[0] / image.width, size[1] / image.height
    if frame.fit == "crop" and frame.size:
        factor = max(across, down)
        offsets = ((size[0] - image.width * factor) / 2, (size[1] - image.height * factor) / 2)
        return ImageOps.fit(image, size, method), Placement(image.size, size, (factor, factor), offsets)
    if frame.fit == "pad" and frame.size:
        return _padded(image, size, frame)
    return image.resize(size, method), Placement(image.size, size, (across, down))


def _within(size: tuple[int, int], longest: int | None) -> tuple[int, int]:
    """Height and width that keep the image's proportions, and its size if that is allowed."""
    width, height = size
    factor = min(1.0, (longest or width + height) / max(size))
    return max(round(height * factor), 1), max(round(width * factor), 1)


def _padded(image: Image.Image, size: tuple[int, int], frame: Frame) -> tuple[Image.Image, Placement]:
    factor = min(size[0] / image.width, size[1] / image.height)
    width, height = max(round(image.width * factor), 1), max(round(image.height * factor), 1)
    offsets = ((size[0] - width) // 2, (size[1] - height) // 2)
    canvas = Image.new("RGB", size, frame.background).convert(image.mode)
    canvas.paste(image.resize((width, height), _RESAMPLING[frame.resize]), offsets)
    return canvas, Placement(image.size, size, (width / image.width, height / image.height), offsets)
