"""Which models are loaded at start, which version answers, and when the gateway is ready."""

import asyncio
from pathlib import Path

import pytest
from scene import PATIENCE, Scene, Stage, on_loop

from gateway.config import ConfigError
from gateway.errors import LabelNotFound, LoadFailed, ModelNotFound, ModelNotReady
from gateway.models import LOADS_AT_ONCE, Models
from gateway.summary import VersionSummary
from gateway.types import Signature

# At start...


@on_loop
async def test_start(scene: Scene) -> None:
    """Everything wanted is loaded before start returns, with the settings that model.toml gives."""
    scene.put(
        "iris/model.toml", "labels = { stable = 2, beta = 7 }\n[ort]\nlevel = 3\n[signatures.a]\nmethod='regress'"
    )
    scene.put("iris/1/model.onnx")
    scene.put("iris/2/model.onnx")
    assert not scene.models.ready
    await scene.models.start()
    assert scene.models.ready
    assert scene.models.names() == ["iris"]
    (summary,) = scene.models.describe()
    assert 0 < summary.load_seconds < PATIENCE
    expected = VersionSummary(
        name="iris",
        version=2,
        state="AVAILABLE",
        provider="CPU",
        note="CUDA is not here",
        fallbacks=1,
        load_seconds=summary.load_seconds,
        signatures=("serving_default(none -> none)",),
        contracts=(Signature("serving_default", "predict", {}, {}),),
        labels=("stable",),
    )
    assert expected == summary
    (backend,) = scene.stage.made
    source = backend.source
    assert (source.name, source.version, source.device) == ("iris", 2, "cpu")
    assert (source.directory, source.root) == (scene.root / "iris/2", scene.root / "iris")
    assert (source.signatures["a"].method, backend.config.level) == ("regress", 3)


@on_loop
async def test_linked_version(scene: Scene) -> None:
    """A version that is a link to a folder beside the model may open files in that folder only."""
    scene.put(".store/a/model.onnx")
    (scene.root / "iris").mkdir()
    (scene.root / "iris/1").symlink_to("../.store/a")
    await scene.models.start()
    assert scene.stage.made[0].source.root == scene.root / ".store/a"


@on_loop
async def test_failures_at_start(scene: Scene) -> None:
    """Each model loads on its own: what fails is told of and keeps the gateway from being ready."""
    scene.put("good/1/model.onnx")
    scene.put("bad/1/model.onnx")
    scene.stage.failures["bad"] = LoadFailed("model.onnx is not an ONNX model")
    await scene.models.start()
    assert scene.told() == {"bad/1": "END: model.onnx is not an ONNX model", "good/1": "AVAILABLE"}
    assert scene.models.resolve("good").version == 1
    assert not scene.models.ready


@on_loop
async def test_missing_root(stage: Stage, tmp_path: Path) -> None:
    """A models folder that is not there is an error of the configuration."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        await Models([tmp_path / "none"]).start()


@on_loop
async def test_empty_root(scene: Scene) -> None:
    """With no models there is nothing to wait for."""
    await scene.models.start()
    assert scene.models.ready
    assert scene.models.describe() == []


@on_loop
async def test_loads_at_once(scene: Scene) -> None:
    """Different models load at the same time, up to the bound; those of one model one after another."""
    for name in "abcde":
        scene.put(f"{name}/1/model.onnx")
    scene.stage.gate = asyncio.Event()
    starting = asyncio.create_task(scene.models.start())
    await asyncio.wait_for(scene.stage.full.wait(), 10)
    scene.stage.gate.set()
    await starting
    assert (scene.stage.most, len(scene.stage.made)) == (LOADS_AT_ONCE, 5)
    scene.stage.most = 0
    scene.put("f/model.toml", 'versions = "all"')
    for number in range(1, 5):
        scene.put(f"f/{number}/model.onnx")
    await scene.settle()
    assert (scene.stage.most, len(scene.stage.made)) == (1, 9)


@on_loop
async def test_states_in_order(scene: Scene) -> None:
    """A version's life can be watched from START to END."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    scene.put("iris/2/model.onnx")
    await scene.settle()
    await scene.models.drained()
    assert scene.states_of("iris/1") == ["START", "LOADING", "AVAILABLE", "UNLOADING", "END"]
    assert scene.states_of("iris/2") == ["START", "LOADING", "AVAILABLE"]


@on_loop
async def test_requests_during_start(scene: Scene) -> None:
    """A model that is loaded answers while others still load."""
    scene.put("a/1/model.onnx")
    await scene.models.start()
    scene.stage.gate = asyncio.Event()
    scene.put("b/1/model.onnx")
    await scene.models.refresh()
    refreshing = asyncio.create_task(scene.models.refresh())
    await scene.until("b/1", "LOADING")
    assert scene.models.resolve("a").version == 1
    with pytest.raises(ModelNotReady, match="no version of model 'b' answers yet: 1 is in state LOADING"):
        scene.models.resolve("b")
    with pytest.raises(ModelNotReady, match="version 1 of model 'b' is in state LOADING"):
        scene.models.resolve("b", 1)
    with pytest.raises(ModelNotFound, match="model 'b' has no version 2"):
        scene.models.resolve("b", 2)
    scene.stage.gate.set()
    await refreshing
    assert scene.models.resolve("b").version == 1


# Ready...


@on_loop
async def test_ready_stays(scene: Scene) -> None:
    """Once ready, no later failure undoes it."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    scene.stage.failures["iris"] = scene.stage.failures["late"] = LoadFailed("no")
    scene.put("iris/1/model.onnx", "broken")
    scene.put("late/1/model.onnx")
    await scene.settle()
    assert scene.models.ready


@pytest.mark.parametrize("way", ["mended", "removed"])
@on_loop
async def test_ready_later(scene: Scene, way: str) -> None:
    """A model that failed at start is waited for until it loads or vanishes."""
    scene.put("good/1/model.onnx")
    scene.put("bad/1/model.onnx")
    scene.stage.failures["bad"] = LoadFailed("no")
    await scene.models.start()
    assert not scene.models.ready
    scene.stage.failures.clear()
    if way == "mended":
        scene.put("bad/1/model.onnx", "mended")
    else:
        scene.remove("bad")
    await scene.models.refresh()
    assert not scene.models.ready
    await scene.models.refresh()
    assert scene.models.ready


@on_loop
async def test_broken_settings_at_start(scene: Scene) -> None:
    """A model whose model.toml is broken at start is told of and waited for."""
    scene.put("iris/model.toml", "[")
    await scene.models.start()
    assert list(scene.told()) == ["iris/1"]
    assert scene.told()["iris/1"].startswith("END: iris/model.toml: not TOML")
    assert not scene.models.ready
    scene.put("iris/model.toml", 'backend = "echo"')
    await scene.settle()
    assert scene.models.ready


# Which version is meant...


@pytest.mark.parametrize(
    ("version", "label", "expected"),
    [
        (None, None, 3),
        (1, None, 1),
        (None, "stable", 1),
        (None, "newest", 3),
        (9, None, "model 'iris' has no version 9; versions that answer: 3, 1"),
        (2, None, "version 2 of model 'iris' is in state END (no)"),
        (None, "broken", "version 2 of model 'iris' is in state END (no)"),
        (None, "gone", "model 'iris' has no version 8; versions that answer: 3, 1"),
        (None, "Stable", "model 'iris' has no label 'Stable'; its labels: broken, gone, newest, stable"),
    ],
)
@on_loop
async def test_resolve(scene: Scene, version: int | None, label: str | None, expected: int | str) -> None:
    """A label, a number, or nothing names a version; an error lists what there is."""
    scene.put("iris/model.toml", 'versions = "all"\nlabels = { stable = 1, newest = 3, broken = 2, gone = 8 }')
    for number in (1, 2, 3):
        scene.put(f"iris/{number}/model.onnx")
    scene.stage.failures["iris/2"] = LoadFailed("no")
    await scene.models.start()
    if isinstance(expected, int):
        loaded = scene.models.resolve("iris", version, label)
        assert (expected, expected) == (loaded.version, loaded.metadata.version)
        return
    with pytest.raises(ModelNotFound) as caught:
        scene.models.resolve("iris", version, label)
    assert expected == str(caught.value)
    assert caught.value.model == "iris"
    assert isinstance(caught.value, LabelNotFound) == (label == "Stable")


@on_loop
async def test_resolve_a_model_that_did_not_load(scene: Scene) -> None:
    """Who calls a model without a version that serves learns why, and is not told to wait."""
    scene.put("iris/1/model.onnx")
    scene.stage.failures["iris/1"] = LoadFailed("no")
    await scene.models.start()
    with pytest.raises(ModelNotFound) as caught:
        scene.models.resolve("iris")
    assert str(caught.value) == "no version of model 'iris' answers: 1 is in state END (no)"


@on_loop
async def test_resolve_unknown_model(scene: Scene) -> None:
    """A label on an unknown model is an unknown label; otherwise the model is unknown."""
    await scene.models.start()
    with pytest.raises(LabelNotFound, match="there is no model 'iris', so it has no labels") as label_caught:
        scene.models.resolve("iris", None, "stable")
    assert (label_caught.value.model, label_caught.value.label) == ("iris", "stable")
    with pytest.raises(ModelNotFound, match="there is no model 'iris'") as caught:
        scene.models.resolve("iris", 4)
    assert (caught.value.model, caught.value.version) == ("iris", 4)
