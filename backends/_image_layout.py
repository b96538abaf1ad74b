"""How pixels lie in a model's input: found in the declared shape, completed by the configuration."""

from math import isqrt
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct

from gateway.errors import LoadFailed
from gateway.types import Tensor, TensorSpec

T = TypeVar("T")

Layout = Literal["nhwc", "nchw", "nhw", "flat"]

CHANNELS = (1, 3, 4)

_RANKS = {"nhwc": 4, "nchw": 4, "nhw": 3, "flat": 2}
"""With the batch's axis; an input may lack it."""


class Arrangement(Struct, frozen=True):
    """Layout, size and channels of one input."""

    layout: Layout
    size: tuple[int, int] | None
    channels: int
    batched: bool
    dtype: np.dtype

    def row(self, pixels: Tensor) -> Tensor:
        """The pixels as one row of the input. Shapes: [height, width, channels] -> by layout."""
        match self.layout:
            case "nhwc":
                return pixels
            case "nchw":
                return pixels.transpose(2, 0, 1)
            case "nhw":
                return pixels[:, :, 0]
            case "flat":
                return pixels.reshape(-1)

    def sizes(self, tensor: Tensor) -> list[tuple[int, int]]:
        """Width and height of each row of a tensor of pixels; none where it has another rank than the input."""
        if tensor.ndim != _RANKS[self.layout] - (not self.batched):
            return []
        rows = len(tensor) if self.batched else 1
        if self.layout == "flat":
            return [(self.size or (0, 0))[::-1]] * rows
        height, width = tensor.shape[-3:-1] if self.layout == "nhwc" else tensor.shape[-2:]
        return [(width, height)] * rows

    @property
    def empty_shape(self) -> tuple[int, ...]:
        """Of a row, where there is no image to tell."""
        height, width = self.size or (0, 0)
        return self.row(np.empty((height, width, self.channels), np.uint8)).shape


def arrange(spec: TensorSpec, layout: Layout | None, size: tuple[int, int] | None, channels: int | None) -> Arrangement:
    """What the shape says, completed by what is configured. Raises LoadFailed where they differ or say too little."""
    shape = spec.shape
    layout = layout or _guess(spec)
    if shape is not None and len(shape) not in (_RANKS[layout], _RANKS[layout] - 1):
        raise LoadFailed(f"image: layout {layout!r} does not fit input {spec.name!r} of rank {len(shape)}")
    batched = shape is None or len(shape) == _RANKS[layout]
    if layout == "flat":
        size, channels = _unflatten(None if shape is None else shape[-1], size, channels, spec.name)
    else:
        height, width, depth = _dims(shape, layout)
        channels = _agreed("channels", channels, depth) or 3
        if height and width:
            size = _agreed("size", size, (height, width))
    if channels not in CHANNELS:
        raise LoadFailed(f"image: input {spec.name!r} has {channels} channels; 1, 3 and 4 are possible")
    return Arrangement(layout, size, channels, batched, spec.numpy_dtype)


def _guess(spec: TensorSpec) -> Layout:
    match spec.shape:
        case (*_, first, _, last) if (first in CHANNELS) != (last in CHANNELS):
            return "nchw" if first in CHANNELS else "nhwc"
        case (first, int(), int()) if first not in CHANNELS:
            return "nhw"
        case (_,) | (_, _):
            return "flat"
    raise LoadFailed(f"image: the shape of input {spec.name!r} does not tell the layout; set layout")


def _dims(shape: tuple[int | None, ...] | None, layout: Layout) -> tuple[int | None, int | None, int | None]:
    """Height, width and channels."""
    if layout == "nhw":
        height, width = (None, None) if shape is None else shape[-2:]
        return height, width, 1
    if shape is None:
        return None, None, None
    first, second, third = shape[-3:]
    return (second, third, first) if layout == "nchw" else (first, second, third)


def _agreed(what: str, configured: T | None, declared: T | None) -> T | None:
    if configured is not None and declared is not None and configured != declared:
        raise LoadFailed(f"image: {what} is configured as {configured}, but the model's input has {declared}")
    return declared if configured is None else configured


def _unflatten(
    length: int | None, size: tuple[int, int] | None, channels: int | None, name: str
) -> tuple[tuple[int, int] | None, int]:
    """Size and channels of a row of that many values."""
    if length is None:
        return size, channels or 3
    for depth in CHANNELS if channels is None else (channels,):
        height, width = size or (isqrt(length // depth),) * 2
        if height * width * depth == length:
            return (height, width), depth
    raise LoadFailed(f"image: input {name!r} takes {length} values, which fits no square image; set size and channels")
