"""A detector's numbers made into boxes of the images that were sent: the `[detection]` table."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detectors import ANY_SIZE, ONE, OUTPUTS, SQUARE, TABLE, Detector, F, ask, blank, detector, found
from images import colours, encoded

from gateway.errors import InvalidTensor
from gateway.types import InferenceRequest

# Boxes...


@pytest.mark.parametrize(
    ("table", "box"),
    [
        ({"format": "xyxy"}, [10, 20, 30, 60]),
        ({"format": "xywh"}, [10, 20, 20, 40]),
        ({"format": "cxcywh"}, [20, 40, 20, 40]),
        ({"format": "yxyx"}, [20, 10, 60, 30]),
        ({"format": "xyxy", "units": "fractions"}, [0.1, 0.2, 0.3, 0.6]),
        ({"format": "cxcywh", "units": "fractions"}, [0.2, 0.4, 0.2, 0.4]),
    ],
)
def test_formats(table: dict[str, Any], box: list[float]) -> None:
    """However a detector writes a box, the answer is its corner at the top left, its width and its height."""
    backend = detector(Detector(SQUARE, **{**ONE, "boxes": [[box]]}), **TABLE, **table)
    assert found(backend, blank(100, 100)) == ([["dog"]], [[[10, 20, 20, 40]]], [[0.9]])


@pytest.mark.parametrize(
    ("fit", "size", "expected"),
    [
        ("stretch", (200, 50), [20, 10, 40, 20]),
        ("pad", (200, 100), [20, 0, 40, 20]),  # it lies 25 lower, and the box is cut at the image's edge
        ("pad", (100, 200), [0, 40, 10, 80]),
        ("crop", (200, 100), [60, 20, 20, 40]),
        ("crop", (100, 200), [10, 70, 20, 40]),
        ("crop", (50, 50), [5, 10, 10, 20]),
    ],
)
def test_boxes_are_of_the_image_that_was_sent(fit: str, size: tuple[int, int], expected: list[float]) -> None:
    """Resizing, cropping and padding are undone."""
    backend = detector(Detector(SQUARE, **{**ONE, "boxes": [[[10, 20, 30, 60]]]}), image={"fit": fit}, **TABLE)
    if fit == "pad" and size[0] > size[1]:
        expected = [20, 0, 40, 70]
    assert found(backend, blank(*size))[1] == [[expected]]


def test_boxes_of_an_image_that_was_made_smaller() -> None:
    """Images that keep their own size may have a longest side."""
    inner = Detector(ANY_SIZE, boxes=[[1, 2, 3, 4]], scores=[0.9])
    backend = detector(inner, image={"longest": 50, "fit": "pad"})
    assert found(backend, blank(200, 100), blank(40, 50))[1] == [[[4, 8, 8, 8]], [[1, 2, 2, 2]]]
    assert inner.saw == [(1, 25, 50, 3), (1, 50, 40, 3)]


def test_boxes_are_cut_at_the_edges() -> None:
    """Nothing sticks out of the image, and what lies outside is empty."""
    answers = {"boxes": [[[-50, -50, 150, 50], [300, 300, 400, 400]]], "scores": [[0.9, 0.8]]}
    backend = detector(Detector(SQUARE, **answers))
    assert found(backend, blank(100, 100))[1] == [[[0, 0, 100, 50], [100, 100, 0, 0]]]


# Which ones count...


def test_threshold_order_and_most() -> None:
    """The surest come first, what is not sure enough is left out, and so is what is beyond the most."""
    answers = {"boxes": [np.arange(20).reshape(5, 4)], "scores": [[0.3, 0.9, 0.1, 0.8, 0.5]]}
    backend = detector(Detector(SQUARE, **answers), threshold=0.3, max_detections=3, format="xywh")
    assert found(backend, blank(100, 100))[2] == [[0.9, 0.8, 0.5]]


def test_overlapping_boxes() -> None:
    """Of two boxes of one class that overlap too much, the surer one stays; classes do not mind each other."""
    boxes = [[0, 0, 10, 10], [1, 0, 11, 10], [5, 0, 15, 10], [0, 0, 10, 10]]
    answers = {"boxes": [boxes], "scores": [[0.8, 0.9, 0.7, 0.6]], "classes": [[0, 0, 0, 1]]}
    everything = detector(Detector(SQUARE, **answers), **TABLE)
    assert found(everything, blank(100, 100))[0] == [["cat", "cat", "cat", "dog"]]
    apart = detector(Detector(SQUARE, **answers), **TABLE, iou=0.5)
    assert found(apart, blank(100, 100)) == (
        [["cat", "cat", "dog"]],
        [[[1, 0, 10, 10], [5, 0, 10, 10], [0, 0, 10, 10]]],
        [[0.9, 0.7, 0.6]],
    )


def test_overlap_by_hand() -> None:
    """Random boxes are suppressed as two plain loops would do it."""
    random = np.random.default_rng(5)
    corners = random.uniform(0, 60, (200, 2))
    boxes = np.concatenate([corners, corners + random.uniform(5, 40, (200, 2))], axis=1).astype(np.float32)
    scores = random.permutation(np.linspace(0.3, 0.99, 200)).astype(np.float32)
    kept: list[int] = []
    for one in np.argsort(-scores):
        if all(overlap(boxes[one], boxes[other]) <= 0.4 for other in kept):
            kept.append(int(one))
    backend = detector(Detector(SQUARE, boxes=boxes[None], scores=scores[None]), iou=0.4, max_detections=1000)
    assert ask(backend, blank(100, 100)).outputs["dconfidences"][0].tolist() == scores[kept].tolist()


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return float(shared / (sum(areas) - shared))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"scores": [[np.nan, 0.5]]}, [0.5]),
        ({"boxes": [[[0, 0, np.inf, 1], [0, 0, 1, 1]]]}, [0.5]),
        ({"boxes": [[[0, np.nan, 1, 1], [0, 0, 1, 1]]]}, [0.5]),
        ({"scores": [[0.1, 0.2]]}, []),
        ({"boxes": np.zeros((1, 0, 4)), "scores": np.zeros((1, 0))}, []),
    ],
)
def test_what_is_no_number_does_not_count(answers: dict[str, Any], expected: list[float]) -> None:
    """Boxes and scores that are not finite are no finds, and nothing found is an empty answer."""
    backend = detector(Detector(SQUARE, **{"boxes": [[[0, 0, 1, 1]] * 2], "scores": [[0.9, 0.5]], **answers}))
    assert found(backend, blank(100, 100))[2] == [expected]


# Classes...


@pytest.mark.parametrize(
    ("answers", "table", "expected"),
    [
        ({"scores": [[[0.1, 0.8], [0.7, 0.2]]]}, {"labels": ["cat", "dog"]}, (["dog", "cat"], [0.8, 0.7])),
        ({"scores": [[[0.1, 0.7, 0.3], [0.8, 0.2, 0.2]]]}, {}, (["0", "1"], [0.8, 0.7])),
        (
            {"scores": [[[0.9, 0.1, 0.6], [0.3, 0.5, 0.1]]]},
            {"background": 0, "labels": ["none", "cat", "dog"]},
            (["dog", "cat"], [0.6, 0.5]),
        ),
        ({"scores": [[0.9, 0.8]], "classes": [[1, 2]]}, {**TABLE, "first_class": 1}, (["cat", "dog"], [0.9, 0.8])),
        ({"scores": [[0.9, 0.8]], "classes": [[7, np.nan]]}, TABLE, (["7", "nan"], [0.9, 0.8])),
        ({"scores": [[0.9, 0.8]], "classes": [[0, 1]]}, {**TABLE, "background": 0}, (["dog"], [0.8])),
        (
            {"scores": [[0.9, 0.8]], "classes": np.array([["a", b"\xff"]], object)},
            {"classes": "classes"},
            (["a", "\ufffd"], [0.9, 0.8]),
        ),
    ],
    ids=["scores tell", "classes first", "background", "from 1", "unknown", "background class", "names"],
)
def test_classes(answers: dict[str, Any], table: dict[str, Any], expected: tuple[list[str], list[float]]) -> None:
    """Classes come from an output of their own or from the scores, as labels, else as numbers."""
    boxes = np.tile(np.float32([0, 0, 1, 1]), (1, 2, 1))
    backend = detector(Detector(SQUARE, boxes=boxes, **answers), **table)
    classes, _, confidences = found(backend, blank(100, 100))
    assert (classes, confidences) == ([expected[0]], [expected[1]])


def test_scores_lie_either_way() -> None:
    """One row for each class is read as well as one for each box."""
    boxes = np.zeros((1, 3, 4), np.float32)
    backend = detector(Detector(SQUARE, boxes=boxes, scores=[[[0.1, 0.2, 0.9], [0.8, 0.3, 0.2]]]))
    assert found(backend, blank(100, 100))[::2] == ([["0", "1", "1"]], [[0.9, 0.8, 0.3]])


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(
    ("behind", "table", "expected"),
    [
        ([[0.1, 0.8], [0.7, 0.2], [0.1, 0.1]], {}, [0.8, 0.7]),
        ([[0.1, 0.8, 9, 9], [0.7, 0.2, 9, 9], [0.1, 0.1, 9, 9]], {"labels": ["cat", "dog"]}, [0.8, 0.7]),
        ([[0.5, 0.1, 0.8], [0.9, 0.7, 0.2], [0.1, 1, 1]], {"objectness": True, "labels": ["a", "b"]}, [0.63, 0.4]),
        ([[0.9], [0.5], [0.1]], {}, [0.9, 0.5]),
    ],
    ids=["scores", "masks behind them", "objectness", "one class"],
)
def test_scores_behind_the_boxes(
    behind: list[list[float]], table: dict[str, Any], expected: list[float], turned: bool
) -> None:
    """One output may hold both, as YOLO models have it, either way round."""
    rows = [[50, 50, 20, 10, *scores] for scores in behind]
    rows += [[0, 0, 0, 0, *([0] * len(behind[0]))]] * 20
    boxes = np.array([rows]).transpose(0, 2, 1) if turned else np.array([rows])
    backend = detector(Detector(SQUARE, boxes=boxes), scores="boxes", format="cxcywh", **table)
    _, found_boxes, confidences = found(backend, blank(100, 100))
    assert (found_boxes, confidences) == ([[[40, 45, 20, 10]] * 2], [expected])


def test_labels_file(tmp_path: Path) -> None:
    """Labels may be the lines of a file beside the model."""
    (tmp_path / "names.txt").write_text("Katze\r\nHündin \r\n\r\n", "utf-8")
    backend = detector(Detector(SQUARE, **ONE), tmp_path, classes="classes", labels="names.txt")
    assert found(backend, blank(100, 100))[0] == [["Hündin"]]


def test_count() -> None:
    """Where an output tells how many boxes count, the rest is nothing."""
    outputs = (*OUTPUTS, F("number", "float32", (None,)))
    answers = {"boxes": np.zeros((2, 3, 4)), "scores": np.full((2, 3), 0.9), "number": [1.0, 2.0]}
    backend = detector(Detector(SQUARE, outputs, **answers), count="number")
    response = ask(backend, blank(100, 100), blank(100, 100))
    assert response.parameters == {"lengths": [1, 2]}
    assert response.outputs["dclasses"].tolist() == [["0", ""], ["0", "0"]]


# Several images...


def test_images_of_one_size_share_a_run() -> None:
    """A model that takes a batch gets one, and each image has its own boxes."""
    inner = Detector(SQUARE, boxes=[[[10, 10, 20, 20]], [[10, 10, 20, 20]]], scores=[[0.9], [0.1]])
    response = ask(detector(inner), blank(200, 100), blank(50, 50))
    assert (inner.saw, response.parameters) == ([(2, 100, 100, 3)], {"lengths": [1, 0]})
    assert response.outputs["dobjects"].tolist() == [[[20, 10, 20, 10]], [[0, 0, 0, 0]]]


def test_images_of_any_size_are_run_one_by_one() -> None:
    """A model that takes one image of any size is run for each."""
    inner = Detector(ANY_SIZE, boxes=[[1, 2, 3, 4]], scores=[0.9])
    response = ask(detector(inner), blank(20, 10), blank(5, 6))
    assert inner.saw == [(1, 10, 20, 3), (1, 6, 5, 3)]
    assert response.outputs["dobjects"].tolist() == [[[1, 2, 2, 2]], [[1, 2, 2, 2]]]


def test_the_bad_image_of_several_is_named() -> None:
    """Of images that are run one by one, too."""
    inner = Detector(ANY_SIZE, boxes=[[1, 2, 3, 4]], scores=[0.9])
    with pytest.raises(InvalidTensor, match="item 1 is damaged or cut short"):
        ask(detector(inner), blank(9, 9), encoded(colours(64, 64))[:-300])
    assert inner.saw == []


def test_numbers_pass() -> None:
    """Pixels that come as numbers are an image of that size."""
    inner = Detector(ANY_SIZE, boxes=[[1, 2, 300, 400]], scores=[0.9])
    request = InferenceRequest({"x": np.zeros((1, 10, 20, 3), np.uint8)})
    assert asyncio.run(detector(inner).infer(request)).outputs["dobjects"].tolist() == [[[1, 2, 19, 8]]]
    with pytest.raises(InvalidTensor, match=r"images as numbers have as many dimensions as the input.*\[2,3\]"):
        asyncio.run(detector(inner).infer(InferenceRequest({"x": np.zeros((2, 3), np.uint8)})))


def test_no_images() -> None:
    """An empty list has an empty answer."""
    inner = Detector(ANY_SIZE, boxes=[[1, 2, 3, 4]], scores=[0.9])
    assert {name: one.shape for name, one in ask(detector(inner)).outputs.items()} == {
        "dclasses": (0, 0),
        "dobjects": (0, 0, 4),
        "dconfidences": (0, 0),
    }
