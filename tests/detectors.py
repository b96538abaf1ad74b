"""A detector made on the spot, behind its two tables, and what it finds in pictures."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from images import Eye, encoded, spec, wrap

from backends import detection
from gateway.interfaces import Backend, ModelSource
from gateway.types import InferenceRequest, InferenceResponse, TensorSpec

F = TensorSpec
OUTPUTS = (F("boxes", "float32", None), F("scores", "float32", None), F("classes", "float32", None))
SQUARE = spec(None, 100, 100, 3)
ANY_SIZE = spec(1, None, None, 3)
TABLE = {"classes": "classes", "labels": ["cat", "dog"]}


class Detector(Eye):
    """Answers with those outputs, and remembers the shapes of what it saw."""

    def __init__(self, declared: TensorSpec, outputs: tuple[TensorSpec, ...] = OUTPUTS, **answers: Any) -> None:
        super().__init__(declared)
        signature = self.metadata.signatures["serving_default"]
        signatures = {"serving_default": msgspec.structs.replace(signature, outputs={one.name: one for one in outputs})}
        self.metadata = msgspec.structs.replace(self.metadata, signatures=signatures)
        self.answers = {name: np.asarray(value) for name, value in answers.items()}
        self.saw: list[tuple[int, ...]] = []

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        self.saw.append(request.inputs["x"].shape)
        return InferenceResponse({name: self.answers[name] for name in request.outputs})


def detector(inner: Backend, folder: Path = Path(), image: dict[str, Any] | None = None, **table: Any) -> Backend:
    """The detector behind its two tables."""
    source = ModelSource("detector", 1, folder, folder)
    return detection.wrap(wrap(inner, **image or {}), msgspec.convert(table, detection.Config), source)


def blank(width: int, height: int) -> bytes:
    """A picture of that size."""
    return encoded(np.zeros((height, width, 3), np.uint8))


def ask(backend: Backend, *items: bytes, **request: Any) -> InferenceResponse:
    """What it finds in those pictures."""
    array = np.empty(len(items), object)
    array[:] = items
    return asyncio.run(backend.infer(InferenceRequest({"x": array}, **request)))


def found(backend: Backend, *items: bytes) -> tuple[Any, Any, Any]:
    """Classes, boxes and confidences, as lists."""
    outputs = ask(backend, *items).outputs
    boxes = np.round(outputs["dobjects"].astype(float), 3)
    return outputs["dclasses"].tolist(), boxes.tolist(), np.round(outputs["dconfidences"].astype(float), 3).tolist()


ONE = {"boxes": [[[10, 20, 30, 60]]], "scores": [[0.9]], "classes": [[1]]}
"""A dog, as TABLE reads it."""
