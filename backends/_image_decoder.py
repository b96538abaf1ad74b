"""Encoded images to pixels as a model takes them: the `[image]` table, and what it makes of them."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from PIL.ImageFile import ImageFile

from backends._image_files import MOST_PIXELS, ImageError, count_pixels, header, pixels
from backends._image_fitting import Fit, Frame, Placement, Resize
from backends._image_layout import Arrangement, Layout
from backends._svg import DrawError, draw, is_svg
from gateway.errors import InvalidTensor, LoadFailed
from gateway.types import Tensor

INLINE_BYTES = 16 << 10
INLINE_PIXELS = 1 << 16
"""PERF: up to 256 x 256 pixels are made in about 1 ms; a thread costs 0.05 ms, and frees the loop meanwhile."""

AT_ONCE = min(4, os.cpu_count() or 1)
"""Requests whose images are made on threads: each may hold hundreds of megabytes meanwhile, and Python's lock."""

_threads = ThreadPoolExecutor(AT_ONCE, "image")

Seen = list[tuple[Tensor, list[Placement]]]
"""Tensors of pixels, and where the image of each row lies in it."""

Byte = Annotated[int, Meta(ge=0, le=255)]
Side = Annotated[int, Meta(ge=1, le=16_384)]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[image]` table of model.toml."""

    input: str = ""
    """The input that takes images, by its name in a signature or in the model; may be left out if there is one only."""
    size: tuple[Side, Side] | None = None
    """Height and width that every image is resized to; by default the model's own, else the image's."""
    longest: Side | None = None
    """Where images keep their own size: those with a longer side are made smaller, in their proportions."""
    layout: Layout | None = None
    """How the pixels lie: nhwc, nchw, nhw (grey, without an axis for it) or flat; by default told from the shape."""
    channels: Annotated[int, Meta(ge=1, le=4)] | None = None
    """1 (grey), 3 (RGB) or 4 (RGBA); by default the model's own, else 3."""
    scale: float = 1.0
    mean: float | tuple[float, ...] = 0.0
    """One number, or one per channel."""
    std: float | tuple[float, ...] = 1.0
    """One number, or one per channel."""
    resize: Resize = "bilinear"
    fit: Fit = "stretch"
    """stretch: all of the image, its proportions lost; crop: the middle; pad: all of it, the rest background."""
    background: tuple[Byte, Byte, Byte] = (0, 0, 0)
    """RGB; what transparent pixels and padding show."""
    max_pixels: Annotated[int, Meta(ge=1, le=MOST_PIXELS)] = 32 << 20
    """In all the images of one request, as sent and as resized; more is refused before decoding."""
    max_images: Annotated[int, Meta(ge=1, le=65_536)] = 256
    """In one request."""


class Decoder:
    """Object arrays of encoded images to arrays of pixels as the model takes them."""

    def __init__(self, config: Config, arrangement: Arrangement) -> None:
        channels = arrangement.channels
        self._arrangement = arrangement
        self._frame = Frame(arrangement.size, config.longest, channels, config.resize, config.fit, config.background)
        self._max_pixels = config.max_pixels
        self._max_images = config.max_images
        self._scale = np.float32(config.scale)
        self._mean = _per_channel("mean", config.mean, channels)
        self._std = _per_channel("std", config.std, channels)
        if not (np.isfinite(self._scale) and np.isfinite(self._mean).all() and np.isfinite(self._std).all()):
            raise LoadFailed("image: scale, mean and std must be finite numbers")
        if not self._std.all():
            raise LoadFailed("image: std is 0")
        self._as_is = config.scale == 1 and not self._mean.any() and bool((self._std == 1).all())
        if self._as_is and arrangement.dtype == np.int8:
            raise LoadFailed("image: an int8 input cannot hold pixels from 0 to 255; set mean = 128, or scale")

    def sizes(self, tensor: Tensor) -> list[tuple[int, int]]:
        """Width and height of each image that came as numbers. Raises InvalidTensor."""
        sizes = self._arrangement.sizes(tensor)
        if not sizes and tensor.size:
            shape = ",".join(map(str, tensor.shape))
            raise InvalidTensor(f"images as numbers have as many dimensions as the input; these have shape [{shape}]")
        return sizes

    async def decode(self, name: str, array: Tensor, together: bool = True) -> Seen:
        """One tensor, or one for each image. Shapes: [], [n] or [n, 1] -> [n, ...] or n of [1, ...].

        Raises InvalidTensor, naming the item and what is wrong with it.
        """
        items = self._items(name, array)
        if any(map(is_svg, items)):
            items = await self._drawn(name, items)
        if sum(map(len, items)) > INLINE_BYTES:
            return await _on_thread(lambda: self._seen(name, self._opened(name, items), together))
        images = self._opened(name, items)
        if count_pixels(images, self._frame) > INLINE_PIXELS:
            return await _on_thread(lambda: self._seen(name, images, together))
        return self._seen(name, images, together)

    def _items(self, name: str, array: Tensor) -> list[bytes]:
        if array.ndim > 2 or array.shape[1:] not in ((), (1,)):
            shape = ",".join(map(str, array.shape))
            raise InvalidTensor(f'input "{name}": images come as a list, one a row, not as shape [{shape}]')
        items: list[Any] = array.ravel().tolist()
        if len(items) > self._max_images:
            raise InvalidTensor(f'input "{name}": {len(items)} images; at most {self._max_images} are taken at once')
        if len(items) != 1 and not self._arrangement.batched:
            raise InvalidTensor(f'input "{name}": {len(items)} images; the model takes one')
        for index, item in enumerate(items):
            if not isinstance(item, bytes):
                hint = ' (in JSON an image is {"b64": "..."})' if isinstance(item, str) else ""
                raise InvalidTensor(
                    f'input "{name}": item {index} is {"text" if hint else type(item).__name__}, '
                    f"but an image is binary{hint}"
                )
        return items

    async def _drawn(self, name: str, items: Sequence[bytes]) -> list[bytes]:
        """The images, those that are drawings made into PNG."""
        places = [place for place, item in enumerate(items) if is_svg(item)]
        try:
            drawn = dict(zip(places, await draw([items[place] for place in places], self._max_pixels), strict=True))
        except DrawError as error:
            raise InvalidTensor(f'input "{name}": item {places[error.place]} is {error}') from None
        return [drawn.get(place, item) for place, item in enumerate(items)]

    def _opened(self, name: str, items: Sequence[bytes]) -> list[ImageFile]:
        images: list[ImageFile] = []
        height, width = self._frame.size or (0, 0)
        left = self._max_pixels
        for index, item in enumerate(items):
            try:
                images.append(header(item))
            except ImageError as error:
                raise InvalidTensor(f'input "{name}": item {index} is {error}') from None
            left -= max(images[-1].width * images[-1].height, height * width)
            if left < 0:
                raise InvalidTensor(
                    f'input "{name}": item {index} has {images[-1].width} x {images[-1].height} pixels; '
                    f"at most {self._max_pixels} in all are taken at once"
                )
        return images

    def _seen(self, name: str, images: Sequence[ImageFile], together: bool) -> Seen:
        if together:
            return [self._stacked(name, images)]
        return [self._stacked(name, [image], index) for index, image in enumerate(images)]

    def _stacked(self, name: str, images: Sequence[ImageFile], first: int = 0) -> tuple[Tensor, list[Placement]]:
        arrangement = self._arrangement
        placements = []
        stack = np.empty((len(images), *arrangement.empty_shape), arrangement.dtype)
        for index, image in enumerate(images):
            try:
                values, placement = pixels(image, self._frame)
            except ImageError as error:
                raise InvalidTensor(f'input "{name}": item {first + index} is {error}') from None
            placements.append(placement)
            row = arrangement.row(self._valued(values))
            if index == 0:
                stack = np.empty((len(images), *row.shape), arrangement.dtype)
            if row.shape != stack.shape[1:]:
                raise InvalidTensor(f'input "{name}": item {index} differs in size from item 0, and no size is set')
            stack[index] = row
        return (stack if arrangement.batched else stack[0]), placements

    def _valued(self, values: Tensor) -> Tensor:
        if self._as_is:
            return values
        valued: Tensor = (values * self._scale - self._mean) / self._std
        if self._arrangement.dtype.kind == "f":
            return valued
        limits = np.iinfo(self._arrangement.dtype)
        rounded: Tensor = np.rint(valued).clip(limits.min, limits.max)
        return rounded


async def _on_thread(work: Callable[[], Seen]) -> Seen:
    return await asyncio.get_running_loop().run_in_executor(_threads, work)


def _per_channel(what: str, values: float | tuple[float, ...], channels: int) -> Tensor:
    array = np.array(values, np.float32)
    if array.ndim and array.shape != (channels,):
        raise LoadFailed(f"image: {what} has {len(array)} numbers; the image has {channels} channels")
    return array
