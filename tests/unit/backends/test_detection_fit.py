"""What a detector says of itself, and tables and models that do not fit each other."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from detectors import ONE, OUTPUTS, SQUARE, TABLE, Detector, F, ask, blank, detector
from images import wrap

from backends import detection
from gateway.errors import InferenceFailed, InvalidTensor, LoadFailed
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest, InferenceResponse

# What it says of itself, and what does not fit...


def test_metadata() -> None:
    """The signature's outputs are the finds', and are never joined with another request's."""
    backend = detector(Detector(SQUARE, **ONE), **TABLE)
    signature = backend.metadata.signatures["serving_default"]
    assert list(signature.outputs) == ["dclasses", "dobjects", "dconfidences"]
    assert (signature.batchable, signature.inputs["x"].media) == ("never", "image")


def test_wanted_outputs() -> None:
    """Some of the finds' outputs may be asked for, and the model's own no more."""
    backend = detector(Detector(SQUARE, **ONE), **TABLE)
    assert list(ask(backend, blank(9, 9), outputs=("dconfidences",)).outputs) == ["dconfidences"]
    with pytest.raises(InvalidTensor, match='there is no output "boxes"'):
        ask(backend, blank(9, 9), outputs=("boxes",))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"boxes": [[1, 2, 3]]}, r"output 'boxes' has shape \[1,3\]; expected \[n, 4\]"),
        ({"boxes": [1, 2, 3, 4]}, r"output 'boxes' has shape \[4\]; expected \[n, 4\] for each of 1 images"),
        ({"boxes": np.zeros((2, 1, 4))}, r"output 'boxes' has shape \[2,1,4\]"),
        ({"scores": [[0.1, 0.2, 0.3]]}, r"output 'scores' has shape \[3\]; expected \[1\] or \[1, classes\]"),
        ({"scores": np.zeros((1, 1, 1, 1))}, r"output 'scores' has shape \[1,1,1\]"),
        (
            {"boxes": np.zeros((1, 9, 4)), "both": True},
            r"output 'boxes' has shape \[9,4\]; expected \[n, 4 \+ classes\]",
        ),
        ({"scores": 0.5}, r"output 'scores' has shape \[\]; expected one row"),
        ({"classes": [[1, 2]]}, r"output 'classes' has shape \[2\]; expected \[1\]"),
        ({"classes": 1}, r"output 'classes' has shape \[\]"),
    ],
)
def test_outputs_of_another_shape(answers: dict[str, Any], said: str) -> None:
    """A model that does not answer as its table promises is at fault, and the output is named."""
    table = {**TABLE, "scores": "boxes"} if answers.pop("both", False) else TABLE
    backend = detector(Detector(SQUARE, **{**ONE, **answers}), **table)
    with pytest.raises(InferenceFailed, match=said):
        ask(backend, blank(9, 9))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"boxes": "places"},
            "no signature that takes images has the outputs 'places' and 'scores'; set boxes and scores; there are",
        ),
        ({"classes": "kinds"}, "classes: signature 'serving_default' has no output 'kinds'"),
        ({"labels": "labels.txt"}, "there is no labels.txt in the version's folder"),
        ({"labels": "../labels.txt"}, r"there is no \.\./labels.txt"),
        ({"boxes": "text"}, "boxes: output 'text' is string, and numbers are needed"),
    ],
)
def test_tables_that_do_not_fit(table: dict[str, Any], said: str, tmp_path: Path) -> None:
    """A table that does not fit the model fails the load, and says why."""
    inner = Detector(SQUARE, (*OUTPUTS, F("text", "string", (None,))), **ONE)
    with pytest.raises(LoadFailed, match=said):
        detector(inner, tmp_path, **table)


def test_labels_outside_the_model(tmp_path: Path) -> None:
    """No file outside the model's folder is read."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "model").mkdir()
    with pytest.raises(LoadFailed, match="lies outside the model's own folder"):
        detector(Detector(SQUARE, **ONE), tmp_path / "model", labels="../secret.txt")


def test_signatures_without_images() -> None:
    """What takes no image answers as the model does."""
    inner = Detector(SQUARE, **ONE)
    plain = msgspec.structs.replace(inner.metadata.signatures["serving_default"], name="plain", inputs={})
    signatures = {**inner.metadata.signatures, "plain": plain}
    inner.metadata = msgspec.structs.replace(inner.metadata, signatures=signatures)
    outputs = {name: list(one.outputs) for name, one in detector(inner).metadata.signatures.items()}
    assert outputs == {
        "serving_default": ["dclasses", "dobjects", "dconfidences"],
        "plain": ["boxes", "scores", "classes"],
    }


def test_the_tables_belong_together() -> None:
    """[detection] stands below [image], which is said where it does not."""
    source = ModelSource("detector", 1, Path(), Path())
    with pytest.raises(LoadFailed, match=r"\[image\] must stand above \[detection\]"):
        detection.wrap(Detector(SQUARE, **ONE), detection.Config(), source)
    with pytest.raises(LoadFailed, match=r"\[detection\] must stand below \[image\]"):
        wrap(detector(Detector(SQUARE, **ONE), **TABLE))


def test_streams_and_closes() -> None:
    """A stream is the one answer; closing reaches the model; a missing input is the model's to name."""
    inner = Detector(SQUARE, **ONE)
    backend = detector(inner, **TABLE)

    async def run() -> list[InferenceResponse]:
        array = np.array([blank(9, 9)], object)
        parts = [part async for part in backend.stream(InferenceRequest({"x": array}))]
        await backend.close()
        return parts

    assert [part.outputs["dclasses"].tolist() for part in asyncio.run(run())] == [[["dog"]]]
    assert inner.closed == ["backend"]
