"""Images made on the spot, and a backend that shows what a model sees of them."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from backends import image
from gateway.interfaces import Backend, BackendStatus, ModelSource
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata, Signature, TensorSpec

SOURCE = ModelSource("images", 1, Path(), Path())


class Eye:
    """A backend that answers with the very tensors it saw."""

    def __init__(self, *specs: TensorSpec, **renamed: dict[str, TensorSpec]) -> None:
        inputs = {"serving_default": {spec.name: spec for spec in specs}, **renamed}
        signatures = {name: Signature(name, "predict", taken, {}) for name, taken in inputs.items()}
        self.metadata = ModelMetadata("images", 1, "eye", signatures)
        self.status = BackendStatus("eye")
        self.closed: list[str] = []

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        return InferenceResponse(dict(request.inputs))

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        try:
            while True:
                yield InferenceResponse(dict(request.inputs))
        finally:
            self.closed.append("stream")

    async def close(self) -> None:
        self.closed.append("backend")


def spec(*shape: int | None, dtype: str = "uint8", name: str = "x") -> TensorSpec:
    """An input of that shape."""
    return TensorSpec(name, dtype, shape)


def wrap(inner: Eye, **config: Any) -> Backend:
    """The backend behind an `[image]` table."""
    return image.wrap(inner, msgspec.convert(config, image.Config), SOURCE)


def see(declared: TensorSpec, *items: Any, **config: Any) -> np.ndarray:
    """What the model sees of those items."""
    array = np.empty(len(items), object)
    array[:] = items
    return see_array(declared, array, **config)


def see_array(declared: TensorSpec, array: np.ndarray, **config: Any) -> np.ndarray:
    """What the model sees of that array."""
    backend = wrap(Eye(declared), **config)
    return asyncio.run(backend.infer(InferenceRequest({declared.name: array}))).outputs[declared.name]


def encoded(pixels: Any, format: str = "PNG", mode: str | None = None, **options: Any) -> bytes:
    """Those pixels as a file. Shapes: [height, width] or [height, width, channels]."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels))
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, format, **options)
    return file.getvalue()


def colours(height: int, width: int, channels: int = 3) -> np.ndarray:
    """Different pixels everywhere."""
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


RGB = colours(2, 3)
GREY = RGB[:, :, 0]
