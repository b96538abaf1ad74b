"""What a failed load says and leaves behind, and how versions go."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from scene import FakeBackend, Scene, Stage, on_loop

from gateway.errors import LoadFailed, ModelNotFound

# What a failed load says, and what it leaves behind...


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (LoadFailed("op set 99 is not known"), "op set 99 is not known"),
        (PermissionError(13, "Permission denied", "/srv/models/iris/1/model.onnx"), "Permission denied"),
        (ValueError("/srv/models is odd"), "the backend failed with ValueError; the server's log says more"),
    ],
)
@on_loop
async def test_reason(scene: Scene, failure: Exception, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Status shows what the backend meant to be shown; of anything else only the kind, and the log has the rest."""
    scene.put("iris/1/model.onnx")
    scene.stage.failures["iris"] = failure
    await scene.models.start()
    assert scene.told() == {"iris/1": f"END: {text}"}
    assert isinstance(failure, LoadFailed) or str(failure) in caplog.text


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ('backend = "tvm"', "iris/model.toml: backend: no backend 'tvm'; there are: ort, echo"),
        (
            "[ort]\nlevle = 1",
            "iris/model.toml: ort: (top level): Object contains unknown field `levle`; did you mean 'level'? "
            "There are: level",
        ),
        ("[ort]\nlevel = 'x'", "iris/model.toml: ort: level: Expected `int`, got `str`"),
        ("[tilin]", "iris/model.toml: tilin: no wrapper 'tilin'; there are: image, tiling, brittle"),
        ("[image]\nlevel = 1.5", "iris/model.toml: image: level: Expected `int`, got `float`"),
        ("[image]\n[brittle]", "the wrapper does not fit"),
    ],
)
@on_loop
async def test_bad_plugin_settings(scene: Scene, settings: str, error: str) -> None:
    """A table that no plugin takes is an error that names it, and nothing stays loaded."""
    scene.put("iris/model.toml", settings)
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    assert scene.told() == {"iris/1": f"END: {error}"}
    assert all(backend.closed for backend in scene.stage.made)


@on_loop
async def test_wrappers(scene: Scene) -> None:
    """Wrappers are put on in the order of their tables, and closing reaches the backend through them."""
    scene.put("iris/model.toml", "[tiling]\nlevel = 1\n[ort]\n[image]\nlevel = 2")
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    outer: Any = scene.models.resolve("iris").backend
    assert (outer.config.level, outer.inner.config.level) == (2, 1)
    assert outer.inner.inner is scene.stage.made[0]
    await scene.models.close()
    assert scene.stage.made[0].closed


@on_loop
async def test_version_outside(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A version that leads out of the models folder is never given to a backend."""
    outside = tmp_path_factory.mktemp("outside")
    scene.put("iris/1/model.onnx")
    (scene.root / "iris/2").symlink_to(outside)
    await scene.models.start()
    assert scene.told() == {"iris/2": "END: leads outside the models folder"}
    assert scene.stage.made == []


# Going...


@on_loop
async def test_close(scene: Scene) -> None:
    """Closing takes every model offline, waits for its requests, and leaves nothing open."""
    for name in "abc":
        scene.put(f"{name}/1/model.onnx")
    await scene.models.start()
    loaded = scene.models.resolve("b")
    loaded.acquire()
    closing = asyncio.create_task(scene.models.close())
    await scene.until("c/1", "END")
    with pytest.raises(ModelNotFound):
        scene.models.resolve("b")
    assert not closing.done()
    loaded.release()
    await closing
    assert [backend.closed for backend in scene.stage.made] == [True] * 3
    assert scene.models.names() == []


@on_loop
async def test_close_while_loading(scene: Scene) -> None:
    """Closing cancels the loads in progress, starts no other, and closes what was loaded."""
    scene.put("a/1/model.onnx")
    await scene.models.start()
    scene.stage.gate = asyncio.Event()
    for name in "bcd":
        scene.put(f"{name}/1/model.onnx")
    await scene.models.refresh()
    refreshing = asyncio.create_task(scene.models.refresh())
    await scene.until("b/1", "LOADING")
    await scene.until("c/1", "LOADING")
    await asyncio.sleep(0)
    await scene.models.close()
    await refreshing
    assert scene.stage.loading == []
    assert [backend.closed for backend in scene.stage.made] == [True]
    assert {"b/1", "c/1"} >= set(scene.stage.cancelled)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith(("follow", "drain"))] == []


@on_loop
async def test_drain_has_an_end(stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Requests that never end do not keep an old version for ever."""
    scene = Scene(tmp_path, stage)
    scene.models.drain_seconds = 0.01
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    scene.models.resolve("iris").acquire()
    await scene.models.close()
    assert stage.made[0].closed
    assert "iris version 1: closed with 1 requests still running after 0.01 s" in caplog.text


@on_loop
async def test_close_has_an_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend whose close never ends does not keep the gateway from leaving."""

    async def hang(self: FakeBackend) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(FakeBackend, "close", hang)
    scene.models.drain_seconds = 0.01
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    await scene.models.close()
    assert scene.models.names() == []


@on_loop
async def test_close_fails(scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A backend that cannot be closed is logged, and counts as gone."""

    async def explode(self: FakeBackend) -> None:
        raise RuntimeError("stuck")

    monkeypatch.setattr(FakeBackend, "close", explode)
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    scene.put("iris/2/model.onnx")
    await scene.settle()
    await scene.models.drained()
    assert scene.told() == {"iris/2": "AVAILABLE", "iris/1": "END"}
    assert "could not be closed cleanly" in caplog.text


# Watching...


@on_loop
async def test_watch(scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The watch finds what changes, and outlives a look that fails."""
    await scene.models.start()
    look, looks = scene.models.look, iter(range(100))

    async def stumble() -> None:
        if next(looks) == 0:
            raise RuntimeError("stumbled")
        await look()

    monkeypatch.setattr(scene.models, "look", stumble)
    scene.put("iris/1/model.onnx")
    watching = asyncio.create_task(scene.models.watch(0.001))
    await scene.until("iris/1", "AVAILABLE")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert "the models folders could not be looked at" in caplog.text


@on_loop
async def test_root_goes_away(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A models folder that cannot be read any more, say an unmounted one, takes nothing down."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    away = scene.root.rename(scene.root.with_name("away"))
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE"}
    assert caplog.text.count("cannot be read") == 2  # for the folder and for the model, each once
    away.rename(scene.root)
    await scene.settle()
    assert (scene.models.problems, len(scene.stage.made)) == ({}, 1)


@on_loop
async def test_log(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Each transition is one line of the log."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    await scene.models.close()
    lines = [record.getMessage().partition(" after ")[0] for record in caplog.records]
    assert lines == [
        "iris version 1: loading",
        "iris version 1: available on CPU",
        "iris version 1: unloading",
        "iris version 1: closed",
    ]
