"""Encoded images into pixels: the wrapper that the `[image]` table of model.toml asks for.

An input that takes pixels then takes PNG, JPEG, WebP and SVG too, as an object array of `bytes`, one image a row.
Numbers pass as they are. A pixel is worth (value * scale - mean) / std, with values from 0 to 255.
"""

from backends._image_backend import DETECTS, ImageBackend
from backends._image_decoder import Config, Decoder
from backends._image_layout import arrange
from gateway.errors import LoadFailed
from gateway.interfaces import Backend, ModelSource
from gateway.types import Signature, TensorSpec

__all__ = ["Config", "wrap"]


def wrap(backend: Backend, config: Config, source: ModelSource) -> Backend:
    """The backend with an input that takes images too. Raises LoadFailed if the table does not fit the model."""
    inputs = _image_inputs(backend.metadata.signatures, config.input)
    spec = next(iter(inputs.values()))[1]
    if DETECTS in backend.metadata.extras:
        raise LoadFailed("image: [detection] must stand below [image], for it finds places in the images")
    arrangement = arrange(spec, config.layout, config.size, config.channels)
    names = {signature: name for signature, (name, _) in inputs.items()}
    together = arrangement.size is not None and (spec.shape is None or spec.shape[0] is None)
    return ImageBackend(backend, names, Decoder(config, arrangement), together)


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
