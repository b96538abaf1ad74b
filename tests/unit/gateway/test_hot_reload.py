"""What is loaded follows what lies on disk, and no request ever notices."""

import asyncio

import pytest
from scene import Scene, on_loop

from gateway.errors import LoadFailed, ModelNotFound
from gateway.lifecycle import ENDED_KEPT

# While it runs...


@on_loop
async def test_new_version(scene: Scene) -> None:
    """A new version loads beside the old one, takes over, and the old one goes once its requests are done."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    old = scene.models.resolve("iris")
    old.acquire()
    old.acquire()
    scene.stage.gate = asyncio.Event()
    scene.put("iris/2/model.onnx")
    await scene.models.refresh()
    refreshing = asyncio.create_task(scene.models.refresh())
    await scene.until("iris/2", "LOADING")
    assert scene.models.resolve("iris") is old
    scene.stage.gate.set()
    await refreshing
    assert scene.told() == {"iris/2": "AVAILABLE", "iris/1": "UNLOADING"}
    assert scene.models.resolve("iris").version == 2
    with pytest.raises(ModelNotFound, match="version 1 of model 'iris' is in state UNLOADING"):
        scene.models.resolve("iris", 1)
    old.release()
    await asyncio.sleep(0)
    assert (old.in_flight, scene.stage.made[0].closed) == (1, False)
    old.release()
    await scene.models.drained()
    assert scene.told() == {"iris/2": "AVAILABLE", "iris/1": "END"}
    assert [backend.closed for backend in scene.stage.made] == [True, False]


@on_loop
async def test_changed_in_place(scene: Scene) -> None:
    """Files that change in place are loaded beside the version that answers, which never stops being AVAILABLE."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    old = scene.models.resolve("iris")
    old.acquire()
    scene.put("iris/1/model.onnx", "another")
    await scene.settle()
    new = scene.models.resolve("iris", 1)
    assert new is not old
    assert scene.told() == {"iris/1": "AVAILABLE"}
    assert not scene.stage.made[0].closed
    old.release()
    await scene.models.drained()
    assert [backend.closed for backend in scene.stage.made] == [True, False]
    assert scene.states_of("iris/1") == ["START", "LOADING", "AVAILABLE"]
    scene.remove("iris")
    await scene.settle()
    await scene.models.drained()
    await scene.models.refresh()
    assert scene.models.get("iris") is None


@on_loop
async def test_nothing_changed(scene: Scene) -> None:
    """Looking again at the same files does nothing at all."""
    scene.put("iris/1/model.onnx")
    scene.put("bad/1/model.onnx")
    scene.stage.failures["bad"] = LoadFailed("no")
    await scene.models.start()
    changes, model = len(scene.history), scene.models.get("iris")
    await scene.settle()
    assert (changes, model) == (len(scene.history), scene.models.get("iris"))
    assert len(scene.stage.made) == 1


@on_loop
async def test_broken_new_version(scene: Scene) -> None:
    """A new version that does not load says why, and the old one goes on; mended, it takes over."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    scene.stage.failures["iris/2"] = LoadFailed("truncated")
    scene.put("iris/2/model.onnx")
    await scene.settle()
    await scene.settle()
    assert scene.told() == {"iris/2": "END: truncated", "iris/1": "AVAILABLE"}
    assert scene.models.resolve("iris").version == 1
    assert scene.models.ready
    scene.stage.failures.clear()
    await scene.settle()
    assert scene.models.resolve("iris").version == 1
    scene.put("iris/2/model.onnx", "mended")
    await scene.settle()
    await scene.models.drained()
    assert scene.told() == {"iris/2": "AVAILABLE", "iris/1": "END"}
    scene.put("iris/3/model.onnx")
    await scene.settle()
    await scene.models.drained()
    assert scene.told() == {"iris/3": "AVAILABLE", "iris/2": "END", "iris/1": "END"}


@on_loop
async def test_broken_in_place(scene: Scene) -> None:
    """A change in place that does not load leaves the version as it was, with the reason beside it."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    old = scene.models.resolve("iris")
    scene.stage.failures["iris"] = LoadFailed("truncated")
    scene.put("iris/1/model.onnx", "broken")
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE: truncated"}
    assert scene.models.resolve("iris") is old
    scene.stage.failures.clear()
    scene.put("iris/1/model.onnx", "mended now")
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE"}
    assert scene.models.resolve("iris") is not old


@on_loop
async def test_put_back(scene: Scene) -> None:
    """Files that are put back as they were need no load to clear the error."""
    scene.put("iris/1/model.onnx")
    scene.put("iris/.broken/model.onnx", "broken")
    await scene.models.start()
    scene.stage.failures["iris"] = LoadFailed("truncated")
    for first, second in [("iris/1", "iris/.good"), ("iris/.broken", "iris/1")]:
        (scene.root / first).rename(scene.root / second)
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE: truncated"}
    for first, second in [("iris/1", "iris/.broken"), ("iris/.good", "iris/1")]:
        (scene.root / first).rename(scene.root / second)
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE"}


@on_loop
async def test_removed_version(scene: Scene) -> None:
    """A version whose folder is gone takes no more requests."""
    scene.put("iris/model.toml", 'versions = "all"')
    for number in (1, 2, 3):
        scene.put(f"iris/{number}/model.onnx")
    await scene.models.start()
    scene.remove("iris/3")
    await scene.settle()
    await scene.models.drained()
    assert scene.told() == {"iris/3": "END", "iris/2": "AVAILABLE", "iris/1": "AVAILABLE"}
    assert scene.models.resolve("iris").version == 2
    with pytest.raises(ModelNotFound):
        scene.models.resolve("iris", 3)


@on_loop
async def test_latest_goes_back(scene: Scene) -> None:
    """When the latest version is removed, it answers until the one before it is loaded."""
    scene.put("iris/1/model.onnx")
    scene.put("iris/2/model.onnx")
    await scene.models.start()
    scene.stage.gate = asyncio.Event()
    scene.remove("iris/2")
    await scene.models.refresh()
    refreshing = asyncio.create_task(scene.models.refresh())
    await scene.until("iris/1", "LOADING")
    assert scene.models.resolve("iris").version == 2
    scene.stage.gate.set()
    await refreshing
    assert scene.models.resolve("iris").version == 1


@on_loop
async def test_removed_model(scene: Scene) -> None:
    """A model whose folder is gone takes no more requests, is seen to end, and then is not known any more."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    loaded = scene.models.resolve("iris")
    loaded.acquire()
    scene.remove("iris")
    await scene.settle()
    assert scene.told() == {"iris/1": "UNLOADING"}
    with pytest.raises(ModelNotFound):
        scene.models.resolve("iris")
    await scene.settle()
    loaded.release()
    await scene.models.drained()
    assert scene.told() == {"iris/1": "END"}
    await scene.models.refresh()
    assert scene.models.get("iris") is None
    assert scene.models.names() == []
    assert scene.stage.made[0].closed
    scene.put("iris/1/model.onnx")
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE"}


@on_loop
async def test_removed_while_loading(scene: Scene) -> None:
    """What vanishes while it loads is closed as soon as it is loaded, and never answers."""
    await scene.models.start()
    scene.stage.gate = asyncio.Event()
    scene.put("iris/1/model.onnx")
    await scene.notice()
    await scene.until("iris/1", "LOADING")
    scene.remove("iris")
    await scene.notice()
    scene.stage.gate.set()
    await scene.settle()
    await scene.models.drained()
    await scene.models.refresh()
    assert scene.models.get("iris") is None
    assert [backend.closed for backend in scene.stage.made] == [True]
    assert "AVAILABLE" not in scene.states_of("iris/1")


@on_loop
async def test_changed_while_loading(scene: Scene) -> None:
    """What changes while it loads is loaded again."""
    await scene.models.start()
    scene.stage.gate = asyncio.Event()
    scene.put("iris/1/model.onnx")
    await scene.notice()
    await scene.until("iris/1", "LOADING")
    scene.put("iris/1/model.onnx", "another")
    await scene.notice()
    scene.stage.gate.set()
    await scene.models.refresh()
    await scene.models.drained()
    assert [backend.closed for backend in scene.stage.made] == [True, False]


@on_loop
async def test_slow_load_delays_no_other(scene: Scene) -> None:
    """A look does not wait for loads, so one slow model does not hold up another's changes."""
    scene.put("a/1/model.onnx")
    await scene.models.start()
    scene.stage.gate = asyncio.Event()
    scene.put("slow/1/model.onnx")
    await scene.notice()
    await scene.until("slow/1", "LOADING")
    scene.remove("a")
    await scene.notice()
    await scene.until("a/1", "END")
    assert scene.told() == {"a/1": "END", "slow/1": "LOADING"}
    scene.stage.gate.set()


@on_loop
async def test_gone_before_its_turn(scene: Scene) -> None:
    """A version that waits for its turn to load and vanishes meanwhile is not loaded."""
    scene.put("d/1/model.onnx")
    await scene.models.start()
    scene.stage.gate = asyncio.Event()
    for name in ("b/1", "c/1", "d/2"):
        scene.put(f"{name}/model.onnx")
    await scene.notice()
    await scene.until("c/1", "LOADING")
    assert scene.told()["d/2"] == "START"
    scene.remove("d/2")
    await scene.notice()
    scene.stage.gate.set()
    await scene.models.refresh()
    assert scene.told() == {"b/1": "AVAILABLE", "c/1": "AVAILABLE", "d/1": "AVAILABLE"}
    assert [backend.source.version for backend in scene.stage.made] == [1, 1, 1]


@on_loop
async def test_looks_at_the_same_time(scene: Scene) -> None:
    """Looks that are asked for at the same time follow one another."""
    await scene.models.start()
    scene.put("iris/1/model.onnx")
    await asyncio.gather(scene.models.refresh(), scene.models.refresh())
    assert scene.told() == {"iris/1": "AVAILABLE"}


@on_loop
async def test_replaced_under_another_number(scene: Scene) -> None:
    """When the only version goes and another is still being copied, the old one answers until that is loaded."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    scene.remove("iris/1")
    for text in ("h", "ha", "half"):
        scene.put("iris/2/model.onnx", text)
        await scene.models.refresh()
        assert scene.told() == {"iris/1": "AVAILABLE"}
    await scene.models.refresh()
    assert scene.models.resolve("iris").version == 2


@on_loop
async def test_listed_version_is_missing(scene: Scene) -> None:
    """A version that model.toml lists but the disk does not hold is told of, and awaited."""
    scene.put("iris/model.toml", "versions = [1, 5]")
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    error = "END: model.toml lists version 5, but the model has no folder of that number"
    assert scene.told() == {"iris/5": error, "iris/1": "AVAILABLE"}
    assert not scene.models.ready
    scene.put("iris/5/model.onnx")
    await scene.settle()
    assert scene.told() == {"iris/5": "AVAILABLE", "iris/1": "AVAILABLE"}
    assert scene.models.ready


@on_loop
async def test_policy_changes(scene: Scene) -> None:
    """New policy and labels apply without loading anew what is loaded."""
    scene.put("iris/1/model.onnx")
    scene.put("iris/2/model.onnx")
    await scene.models.start()
    two = scene.models.resolve("iris")
    scene.put("iris/model.toml", 'versions = "all"\nlabels = { old = 1 }')
    await scene.settle()
    assert scene.models.resolve("iris") is two
    assert scene.models.resolve("iris", label="old").version == 1


@on_loop
async def test_ended_versions_are_bounded(scene: Scene) -> None:
    """Only the last few ended versions are told of, however many releases there were."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    last = ENDED_KEPT + 4
    for number in range(2, last + 1):
        scene.put(f"iris/{number}/model.onnx")
        await scene.settle()
        await scene.models.drained()
    model = scene.models.get("iris")
    assert model is not None
    assert list(range(last, last - ENDED_KEPT - 1, -1)) == [told.version for told in model.status.versions]


@on_loop
async def test_broken_settings(scene: Scene) -> None:
    """A model.toml that breaks while the model serves changes nothing but the status."""
    scene.put("iris/1/model.onnx")
    await scene.models.start()
    loaded = scene.models.resolve("iris")
    scene.put("iris/model.toml", "backend = 3")
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE: iris/model.toml: backend: Expected `str`, got `int`"}
    assert list(scene.models.problems) == ["iris"]
    assert scene.models.resolve("iris") is loaded
    (scene.root / "iris/model.toml").unlink()
    await scene.settle()
    assert scene.told() == {"iris/1": "AVAILABLE"}
    assert scene.models.resolve("iris") is loaded
