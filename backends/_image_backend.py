"""A backend one of whose inputs takes encoded images too, and what the model sees of them."""

from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from backends._image_decoder import Decoder
from backends._image_fitting import Placement
from gateway.interfaces import Backend, BackendStatus
from gateway.types import InferenceRequest, InferenceResponse, Signature, Tensor

DETECTS = "detects"
"""In the metadata's extras of a model whose boxes have been found in its images."""


class View(Struct, frozen=True):
    """What a model sees of some images, and where they lie in that."""

    request: InferenceRequest
    placements: list[Placement]


class ImageBackend:
    """A backend one of whose inputs takes images too."""

    def __init__(self, inner: Backend, inputs: dict[str, str], decoder: Decoder, together: bool) -> None:
        """`together`: images of any sizes are rows of one tensor."""
        signatures = {
            name: _with_image(signature, inputs[name]) if name in inputs else signature
            for name, signature in inner.metadata.signatures.items()
        }
        self.metadata = replace(inner.metadata, signatures=signatures)
        self._inner = inner
        self._inputs = inputs
        self._decoder = decoder
        self._together = together

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

    async def views(self, request: InferenceRequest) -> list[View]:
        """The request as the inner backend takes it; as one for each image where the model takes one at a time."""
        name = self._inputs.get(request.signature, "")
        array = request.inputs.get(name)
        if array is None or array.dtype != object:
            sizes = [] if array is None else self._decoder.sizes(array)
            return [View(request, [Placement(size, size) for size in sizes])]
        seen = await self._decoder.decode(name, array, self._together)
        return [View(_with(request, name, tensor), placements) for tensor, placements in seen]

    async def _with_pixels(self, request: InferenceRequest) -> InferenceRequest:
        name = self._inputs.get(request.signature, "")
        array = request.inputs.get(name)
        if array is None or array.dtype != object:
            return request
        [(tensor, _)] = await self._decoder.decode(name, array)
        return _with(request, name, tensor)


def _with(request: InferenceRequest, name: str, tensor: Tensor) -> InferenceRequest:
    return replace(request, inputs={**request.inputs, name: tensor})


def _with_image(signature: Signature, name: str) -> Signature:
    return replace(signature, inputs={**signature.inputs, name: replace(signature.inputs[name], media="image")})
