"""What a detector finds in one image: its numbers to classes, boxes and confidences, the surest first."""

from typing import Literal

import numpy as np
from msgspec import Struct

from gateway.types import Tensor

Format = Literal["xyxy", "xywh", "cxcywh", "yxyx"]

MOST_CANDIDATES = 8192
"""Of the boxes above the threshold, the surest are compared with each other."""


class Rule(Struct, frozen=True):
    """How a detector's numbers are read, and which of them count."""

    format: Format
    fractions: bool
    """Places are parts of width and height, not pixels."""
    threshold: float
    overlap: float | None
    """Of two boxes of one class that overlap more, as intersection over union, the surer one stays."""
    most: int
    background: int | None
    """The class that stands for nothing."""


class Guesses(Struct, frozen=True):
    """What a model says of one image."""

    boxes: Tensor
    """Shape: [n, 4]."""
    scores: Tensor
    """Shape: [n], or [n, classes]."""
    classes: Tensor | None
    """Shape: [n]; None where the scores tell."""


class Found(Struct, frozen=True):
    """The boxes that count, the surest first."""

    corners: Tensor
    """Left, top, right, bottom, in pixels of what the model saw. Shape: [n, 4]."""
    classes: Tensor
    """Numbers, or names."""
    confidences: Tensor


def find(guesses: Guesses, rule: Rule, frame: tuple[int, int]) -> Found:
    """The boxes that count; `frame` is width and height of what the model saw."""
    classes, scores = _best(guesses, rule.background)
    sure = scores >= rule.threshold  # False for NaN, too
    if rule.background is not None and guesses.classes is not None and classes.dtype.kind in "iuf":
        sure &= classes != rule.background
    places = np.flatnonzero(sure & np.isfinite(guesses.boxes).all(axis=1))
    order = places[np.argsort(-scores[places], kind="stable")][:MOST_CANDIDATES]
    corners = _corners(guesses.boxes[order].astype(np.float64), rule.format)
    if rule.fractions:
        corners *= np.tile(frame, 2)
    kept = np.arange(len(order))[: rule.most]
    if rule.overlap is not None:
        kept = _apart(corners, classes[order], rule.overlap, rule.most)
    return Found(corners[kept], classes[order][kept], scores[order][kept])


def _best(guesses: Guesses, background: int | None) -> tuple[Tensor, Tensor]:
    """The class of each box, and its score."""
    scores = guesses.scores
    if scores.ndim == 1:
        classes = np.zeros(len(scores), np.int64) if guesses.classes is None else guesses.classes
        return classes, scores.astype(np.float32)
    scores = np.nan_to_num(scores.astype(np.float32), nan=-np.inf)
    if background is not None and 0 <= background < scores.shape[1]:
        scores[:, background] = -np.inf
    best = scores.argmax(axis=1) if scores.shape[1] else np.zeros(len(scores), np.int64)
    return best if guesses.classes is None else guesses.classes, scores.max(axis=1, initial=-np.inf)


def _corners(boxes: Tensor, form: Format) -> Tensor:
    """Left, top, right, bottom."""
    first, second, third, fourth = boxes.T
    match form:
        case "xyxy":
            sides = (first, second, third, fourth)
        case "yxyx":
            sides = (second, first, fourth, third)
        case "xywh":
            sides = (first, second, first + third, second + fourth)
        case "cxcywh":
            sides = (first - third / 2, second - fourth / 2, first + third / 2, second + fourth / 2)
    return np.stack(sides, axis=1)


def _apart(corners: Tensor, classes: Tensor, overlap: float, most: int) -> Tensor:
    """Places of the boxes that stay, from the surest on."""
    areas = (corners[:, 2:] - corners[:, :2]).clip(0).prod(axis=1)
    left = np.arange(len(corners))
    kept: list[int] = []
    while left.size and len(kept) < most:
        one, left = left[0], left[1:]
        kept.append(int(one))
        inner = np.minimum(corners[one, 2:], corners[left, 2:]) - np.maximum(corners[one, :2], corners[left, :2])
        shared = inner.clip(0).prod(axis=1)
        both = areas[one] + areas[left] - shared
        left = left[(classes[left] != classes[one]) | (shared <= overlap * both)]
    return np.array(kept, np.int64)
