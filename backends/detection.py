"""A detector's numbers into classes, boxes and confidences: the wrapper that the `[detection]` table asks for.

It stands around `[image]`, and answers `dclasses`, `dobjects` and `dconfidences`: [x, y, width, height] in pixels of
the image that was sent, [x, y] being the corner at the top left. Images with fewer finds than others of their request
are filled up; the parameter `lengths` tells how many each has.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace

from backends._detection_boxes import Format, Found, Guesses, Rule, find
from backends._foldertexts import read_text
from backends._image_backend import DETECTS, ImageBackend, View
from backends._image_fitting import Placement
from backends._ports import check_wanted
from gateway.errors import InferenceFailed, LoadFailed
from gateway.interfaces import Backend, BackendStatus, ModelSource
from gateway.types import LENGTHS, InferenceRequest, InferenceResponse, Signature, Tensor, TensorSpec

CLASSES, BOXES, CONFIDENCES = "dclasses", "dobjects", "dconfidences"
OUTPUTS = {
    CLASSES: TensorSpec(CLASSES, "string", (None, None)),
    BOXES: TensorSpec(BOXES, "float32", (None, None, 4)),
    CONFIDENCES: TensorSpec(CONFIDENCES, "float32", (None, None)),
}

INLINE_SCORES = 1 << 14
"""PERF: fewer are sorted out faster than a thread is reached."""
MOST_LABEL_BYTES = 4 << 20

Share = Annotated[float, Meta(ge=0, le=1)]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[detection]` table of model.toml. Outputs go by their names in a signature or in the model."""

    boxes: str = "boxes"
    """The output of boxes, [n, 4]; with a first dimension for the images, or without one."""
    scores: str = "scores"
    """The output of scores, [n]; or one for each class, [n, classes] or [classes, n]. The output of the boxes, if the
    scores stand behind each box: [n, 4 + classes], or the other way round."""
    objectness: bool = False
    """A score for any object stands before those of the classes, which it multiplies."""
    classes: str = ""
    """The output of classes, numbers or names; without it, the scores tell, or there is one class only."""
    count: str = ""
    """The output that tells how many boxes of each image count, where the rest is filled up."""
    format: Format = "xyxy"
    """xyxy: two corners; xywh: a corner and the size; cxcywh: the middle and the size; yxyx: two corners, y first."""
    units: Literal["pixels", "fractions"] = "pixels"
    """Of the image as the model sees it."""
    labels: str | tuple[str, ...] = ()
    """The classes' names: a file beside the model with one a line, or the names themselves."""
    first_class: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """The number of the first label."""
    background: int | None = None
    """The number of the class that stands for nothing."""
    threshold: Share = 0.25
    """The least confidence that counts."""
    iou: Share | None = None
    """Of two boxes of one class that overlap more, the surer one stays; by default the model has seen to it."""
    max_detections: Annotated[int, Meta(ge=1, le=8192)] = 100
    """Of one image, the surest first."""


def wrap(backend: Backend, config: Config, source: ModelSource) -> Backend:
    """The backend with boxes for its outputs. Raises LoadFailed if the table does not fit the model."""
    if not isinstance(backend, ImageBackend):
        raise LoadFailed("detection: [image] must stand above [detection], for boxes are places in images")
    labels = _labels(config.labels, source)
    readers = {
        signature.name: _Reader(signature, config, labels)
        for signature in backend.metadata.signatures.values()
        if _sees(signature) and _has(signature, config.boxes) and _has(signature, config.scores)
    }
    if not readers:
        names = {name for signature in backend.metadata.signatures.values() for name in signature.outputs}
        raise LoadFailed(
            f"detection: no signature that takes images has the outputs {config.boxes!r} and {config.scores!r}; "
            f"set boxes and scores; there are {', '.join(map(repr, sorted(names)))}"
        )
    return DetectionBackend(backend, readers, config, labels)


def _labels(labels: str | tuple[str, ...], source: ModelSource) -> tuple[str, ...]:
    if not isinstance(labels, str):
        return labels
    folder = source.directory if (source.directory / labels).exists() else source.root
    text = read_text(folder, source.root, labels, MOST_LABEL_BYTES)
    return tuple(line.strip() for line in text.rstrip().split("\n"))


def _sees(signature: Signature) -> bool:
    return any(spec.media == "image" for spec in signature.inputs.values())


def _has(signature: Signature, wanted: str) -> bool:
    return any(wanted in (name, spec.name) for name, spec in signature.outputs.items())


class _Reader:
    """Finds a detector's guesses in the outputs of one signature."""

    def __init__(self, signature: Signature, config: Config, labels: Sequence[str]) -> None:
        wanted = {"boxes": config.boxes, "scores": config.scores, "classes": config.classes, "count": config.count}
        self._labels = len(labels)
        self._objectness = config.objectness
        self._names = {what: _output(signature, what, name) for what, name in wanted.items() if name}
        self.outputs = tuple(dict.fromkeys(self._names.values()))

    def guesses(self, outputs: Mapping[str, Tensor], images: int) -> list[Guesses]:
        """For each image. Raises InferenceFailed where the outputs are not of the shapes that the table promises."""
        given = {what: outputs[name] for what, name in self._names.items()}
        if given["boxes"].ndim == 2 and images == 1:
            given = {what: tensor[np.newaxis] for what, tensor in given.items()}
        if given["boxes"].ndim != 3:
            raise self._unlike("boxes", given["boxes"], f"[n, 4] for each of {images} images")
        for what, tensor in given.items():
            if not tensor.ndim or len(tensor) != images:
                raise self._unlike(what, tensor, f"one row for each of {images} images")
        return [self._of_one({what: tensor[row] for what, tensor in given.items()}) for row in range(images)]

    def _of_one(self, given: Mapping[str, Tensor]) -> Guesses:
        boxes, scores, classes = given["boxes"], given["scores"], given.get("classes")
        if self._names["boxes"] == self._names["scores"]:
            boxes, scores = self._apart(boxes)
        boxes = boxes.T if boxes.shape[1] != 4 and boxes.shape[0] == 4 else boxes
        number = len(boxes)
        if boxes.shape[1] != 4:
            raise self._unlike("boxes", boxes, "[n, 4]")
        if scores.ndim == 2 and len(scores) != number:
            scores = scores.T
        if self._objectness and scores.ndim == 2 and scores.shape[1] > 1:
            scores = scores[:, 1:] * scores[:, :1]
        if scores.ndim not in (1, 2) or len(scores) != number:
            raise self._unlike("scores", scores, f"[{number}] or [{number}, classes]")
        if classes is not None and classes.shape != (number,):
            raise self._unlike("classes", classes, f"[{number}]")
        end = number
        if "count" in given:
            if given["count"].size != 1:
                raise self._unlike("count", given["count"], "one number")
            end = max(0, int(np.nan_to_num(given["count"].item())))
        return Guesses(boxes[:end], scores[:end], None if classes is None else classes[:end])

    def _apart(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes and scores of an output that holds both; there are more boxes than classes."""
        both = both.T if both.shape[0] < both.shape[1] else both
        if both.shape[1] < 5:
            raise self._unlike("boxes", both, "[n, 4 + classes]")
        # What stands behind the scores, such as the coefficients of masks, is not read.
        end = 4 + self._objectness + self._labels if self._labels else both.shape[1]
        return both[:, :4], both[:, 4:end]

    def _unlike(self, what: str, tensor: Tensor, expected: str) -> InferenceFailed:
        shape = ",".join(map(str, tensor.shape))
        return InferenceFailed(f"detection: output {self._names[what]!r} has shape [{shape}]; expected {expected}")


def _output(signature: Signature, what: str, wanted: str) -> str:
    found = next((name for name, spec in signature.outputs.items() if wanted in (name, spec.name)), None)
    if found is None:
        names = ", ".join(map(repr, signature.outputs))
        raise LoadFailed(f"detection: {what}: signature {signature.name!r} has no output {wanted!r}; it has {names}")
    spec = signature.outputs[found]
    if spec.dtype in ("string", "bool") and what != "classes":
        raise LoadFailed(f"detection: {what}: output {wanted!r} is {spec.dtype}, and numbers are needed")
    return found


class DetectionBackend:
    """A detector whose answers are boxes of the images that it was sent."""

    def __init__(
        self, inner: ImageBackend, readers: Mapping[str, _Reader], config: Config, labels: Sequence[str]
    ) -> None:
        signatures = {
            name: replace(signature, outputs=OUTPUTS, batchable="never") if name in readers else signature
            for name, signature in inner.metadata.signatures.items()
        }
        extras = {**inner.metadata.extras, DETECTS: True}
        self.metadata = replace(inner.metadata, signatures=signatures, extras=extras)
        self._inner = inner
        self._readers = readers
        self._labels = labels
        self._first_class = config.first_class
        self._rule = Rule(
            format=config.format,
            fractions=config.units == "fractions",
            threshold=config.threshold,
            overlap=config.iou,
            most=config.max_detections,
            background=config.background,
        )

    @property
    def status(self) -> BackendStatus:
        """The inner backend's."""
        return self._inner.status

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run the model, once for each image where it takes one at a time, and find the boxes."""
        reader = self._readers.get(request.signature)
        if reader is None:
            return await self._inner.infer(request)
        check_wanted(request.outputs, OUTPUTS)
        found: list[tuple[Found, Placement]] = []
        for view in await self._inner.views(replace(request, outputs=reader.outputs)):
            response = await self._inner.infer(view.request)
            found += await self._found(reader, view, response.outputs)
        outputs, lengths = self._tensors(found)
        wanted = {name: outputs[name] for name in request.outputs or OUTPUTS}
        return InferenceResponse(wanted, {LENGTHS: lengths})

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The one answer."""
        yield await self.infer(request)

    async def close(self) -> None:
        """Close the inner backend."""
        await self._inner.close()

    async def _found(self, reader: _Reader, view: View, outputs: Mapping[str, Tensor]) -> list[tuple[Found, Placement]]:
        placements = view.placements
        if not placements:
            return []
        guesses = reader.guesses(outputs, len(placements))

        def find_all() -> list[tuple[Found, Placement]]:
            pairs = zip(guesses, placements, strict=True)
            return [(find(guess, self._rule, placement.frame), placement) for guess, placement in pairs]

        small = sum(guess.scores.size for guess in guesses) <= INLINE_SCORES
        return find_all() if small else await asyncio.to_thread(find_all)

    def _tensors(self, found: Sequence[tuple[Found, Placement]]) -> tuple[dict[str, Tensor], list[int]]:
        """The outputs, filled up to the most finds of one image, and the number of each one's."""
        lengths = [len(one.confidences) for one, _ in found]
        shape = (len(found), max(lengths, default=0))
        classes = np.full(shape, "", object)
        boxes = np.zeros((*shape, 4), np.float32)
        confidences = np.zeros(shape, np.float32)
        for row, ((one, placement), length) in enumerate(zip(found, lengths, strict=True)):
            corners = placement.found(one.corners)
            boxes[row, :length, :2] = corners[:, :2]
            boxes[row, :length, 2:] = (corners[:, 2:] - corners[:, :2]).clip(0)
            classes[row, :length] = list(map(self._label, one.classes.tolist()))
            confidences[row, :length] = one.confidences
        return {CLASSES: classes, BOXES: boxes, CONFIDENCES: confidences}, lengths

    def _label(self, number: Any) -> str:
        """The class's name; its number where it has none."""
        if isinstance(number, str):
            return number
        if isinstance(number, bytes):
            return number.decode("utf-8", "replace")
        if not np.isfinite(number):
            return str(number)
        place = int(number) - self._first_class
        return self._labels[place] if 0 <= place < len(self._labels) else str(int(number))
