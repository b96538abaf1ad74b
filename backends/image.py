"""Encoded images into pixels: the wrapper that the `[image]` table of model.toml asks for.

An input that takes pixels then takes PNG and JPEG too, as an object array of `bytes`, one image a row. Numbers pass
as they are. A pixel is worth (value * scale - mean) / std, with values from 0 to 255.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from PIL.ImageFile import ImageFile

from backends._image_decoding import MOST_PIXELS, Fit, Frame, ImageError, Resize, count_pixels, header, pixels
from backends._image_layout import Arrangement, Layout, arrange
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import Backend, BackendStatus, ModelSource
from gateway.types import InferenceRequest, InferenceResponse, Signature, Tensor, TensorSpec

INLINE_BYTES = 16 << 10
INLINE_PIXELS = 1 << 16
"""PERF: up to 256 x 256 pixels are made in about 1 ms; a thread costs 0.05 ms, and frees the loop meanwhile."""

Byte = Annotated[int, Meta(ge=0, le=255)]
Side = Annotated[int, Meta(ge=1, le=16_384)]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[image]` table of model.toml."""

    input: str = ""
    """The input that takes images, by its name in a signature or in the model; may be left out if there is one only."""
    size: tuple[Side, Side] | None = None
    """Height and width that every image is resized to; by default the model's own, else the image's."""
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


def wrap(backend: Backend, config: Config, source: ModelSource) -> Backend:
    """The backend with an input that takes images too. Raises LoadFailed if the table does not fit the model."""
    inputs = _image_inputs(backend.metadata.signatures, config.input)
    spec = next(iter(inputs.values()))[1]
    arrangement = arrange(spec, config.layout, config.size, config.channels)
    names = {signature: name for signature, (name, _) in inputs.items()}
    return ImageBackend(backend, names, _Decoder(config, arrangement))


def _image_inputs(signatures: dict[str, Signature], wanted: str) -> dict[str, tuple[str, TensorSpec]]:
    """For each signature that takes the image: the input's name and spec."""
    found = {
        signature.name: (name, spec)
        for signature in signatures.values()
        for name, spec in signature.inputs.items()
        if wanted in ("", name, spec.name)
    }
    specs = {spec.name: spec for signature in signatures.values() for spec in signature.inputs.values()}
    if not wanted and len(specs) != 1:
        raise LoadFailed(f"image: set input; the model has {', '.join(map(repr, specs)) or 'none'}")
    if not found:
        raise LoadFailed(f"image: the model has no input {wanted!r}; it has {', '.join(map(repr, specs)) or 'none'}")
    one, *others = {spec for _, spec in found.values()}
    if others:
        raise LoadFailed(f"image: {wanted!r} means different inputs in different signatures; use the model's own name")
    if one.dtype in ("string", "bool"):
        raise LoadFailed(f"image: input {one.name!r} is {one.dtype}, which holds no pixels")
    return found


class ImageBackend:
    """A backend one of whose inputs takes images too."""

    def __init__(self, inner: Backend, inputs: dict[str, str], decoder: "_Decoder") -> None:
        signatures = {
            name: _with_image(signature, inputs[name]) if name in inputs else signature
            for name, signature in inner.metadata.signatures.items()
        }
        self.metadata = replace(inner.metadata, signatures=signatures)
        self._inner = inner
        self._inputs = inputs
        self._decoder = decoder

    @property
    def status(self) -> BackendStatus:
        """The inner backend's."""
        return self._inner.status

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run once, on pixels."""
        return await self._inner.infer(await self._with_pixels(request))

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The inner backend's parts."""
        parts = self._inner.stream(await self._with_pixels(request))
        try:
            async for part in parts:
                yield part
        finally:
            if close := getattr(parts, "aclose", None):
                await close()

    async def close(self) -> None:
        """Close the inner backend."""
        await self._inner.close()

    async def _with_pixels(self, request: InferenceRequest) -> InferenceRequest:
        name = self._inputs.get(request.signature, "")
        array = request.inputs.get(name)
        if array is None or array.dtype != object:
            return request
        return replace(request, inputs={**request.inputs, name: await self._decoder.decode(name, array)})


def _with_image(signature: Signature, name: str) -> Signature:
    return replace(signature, inputs={**signature.inputs, name: replace(signature.inputs[name], media="image")})


class _Decoder:
    """Object arrays of encoded images to arrays of pixels as the model takes them."""

    def __init__(self, config: Config, arrangement: Arrangement) -> None:
        channels = arrangement.channels
        self._arrangement = arrangement
        self._frame = Frame(arrangement.size, channels, config.resize, config.fit, config.background)
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

    async def decode(self, name: str, array: Tensor) -> Tensor:
        """Shapes: [], [n] or [n, 1] -> [n, ...]. Raises InvalidTensor, naming the item and what is wrong with it."""
        items = self._items(name, array)
        if sum(map(len, items)) > INLINE_BYTES:
            return await asyncio.to_thread(lambda: self._stacked(name, self._opened(name, items)))
        images = self._opened(name, items)
        if count_pixels(images, self._frame) > INLINE_PIXELS:
            return await asyncio.to_thread(self._stacked, name, images)
        return self._stacked(name, images)

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

    def _stacked(self, name: str, images: Sequence[ImageFile]) -> Tensor:
        arrangement = self._arrangement
        stack = np.empty((len(images), *arrangement.empty_shape), arrangement.dtype)
        for index, image in enumerate(images):
            try:
                row = arrangement.row(self._valued(pixels(image, self._frame)))
            except ImageError as error:
                raise InvalidTensor(f'input "{name}": item {index} is {error}') from None
            if index == 0:
                stack = np.empty((len(images), *row.shape), arrangement.dtype)
            if row.shape != stack.shape[1:]:
                raise InvalidTensor(f'input "{name}": item {index} differs in size from item 0, and no size is set')
            stack[index] = row
        return stack if arrangement.batched else stack[0]

    def _valued(self, values: Tensor) -> Tensor:
        if self._as_is:
            return values
        valued: Tensor = (values * self._scale - self._mean) / self._std
        if self._arrangement.dtype.kind == "f":
            return valued
        limits = np.iinfo(self._arrangement.dtype)
        rounded: Tensor = np.rint(valued).clip(limits.min, limits.max)
        return rounded


def _per_channel(what: str, values: float | tuple[float, ...], channels: int) -> Tensor:
    array = np.array(values, np.float32)
    if array.ndim and array.shape != (channels,):
        raise LoadFailed(f"image: {what} has {len(array)} numbers; the image has {channels} channels")
    return array
