"""Models that come and go by call."""

import asyncio
import shutil
from pathlib import Path

import pytest
from scene import Scene, on_loop

from gateway.config import Config, ServiceConfig
from gateway.errors import (
    Forbidden,
    GatewayError,
    LoadFailed,
    MalformedBody,
    ModelExists,
    ModelNotFound,
    NotReady,
    OutOfMemory,
)
from gateway.interfaces import ListModels, LoadModel, ManagedModel, UnloadModel
from gateway.model_control import ModelControl
from gateway.models import Models
from gateway.routing import Directory


class Desk:
    """A scene whose models folder has the model `disk`, and a folder beside it to load from."""

    def __init__(self, scene: Scene, config: Config, most: int = 0) -> None:
        self.scene = scene
        self.store = scene.root.parent / f"{scene.root.name}-store"
        self.store.mkdir()
        scene.put("disk/1/model.onnx")
        self.directory = Directory(config, scene.models)
        self.control = ModelControl([self.store], most, scene.models, lambda: self.directory)

    def put(self, name: str, text: str = "x") -> str:
        path = self.store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path.parent)

    async def load(self, name: str, url: str | None = None) -> list[ManagedModel]:
        return await self.control.run(LoadModel(name, url or str(self.store / name)))

    async def names(self) -> list[str]:
        return [model.name for model in await self.control.run(ListModels())]


@pytest.fixture
def desk(scene: Scene) -> Desk:
    return Desk(scene, Config(services={"front": ServiceConfig(model="behind", aliases=("other",))}))


# Loading...


@on_loop
async def test_a_loaded_model_answers_under_its_name(desk: Desk) -> None:
    """It is available when the call returns, and a service of its own name."""
    await desk.scene.models.start()
    url = desk.put("m1/model/model.onnx")
    assert await desk.load("hash-1", url) == [ManagedModel("hash-1", url)]
    assert desk.scene.told() == {"disk/1": "AVAILABLE", "hash-1/1": "AVAILABLE"}
    service = desk.directory.get("hash-1")
    assert service is not None
    assert (service.model, service.protected) == ("hash-1", False)
    assert desk.scene.models.resolve("hash-1").metadata.name == "hash-1"


@on_loop
async def test_a_url_may_be_a_file_uri(desk: Desk) -> None:
    """With an empty host or localhost, percent-encoded."""
    await desk.scene.models.start()
    url = desk.put("my model/model.onnx")
    await desk.load("a", Path(url).as_uri())
    await desk.load("b", Path(url).as_uri().replace("file://", "file://localhost"))
    assert await desk.names() == ["a", "b"]


@on_loop
async def test_versions_and_settings_are_read(desk: Desk) -> None:
    """The folder is one of a model: numbered versions, model.toml."""
    await desk.scene.models.start()
    desk.put("m/model.toml", "versions = 'all'\n[ort]\nlevel = 7")
    desk.put("m/1/model.onnx")
    desk.put("m/2/model.onnx")
    await desk.load("m")
    assert desk.scene.told() == {"disk/1": "AVAILABLE", "m/1": "AVAILABLE", "m/2": "AVAILABLE"}
    assert [backend.config.level for backend in desk.scene.stage.made[1:]] == [7, 7]


@on_loop
async def test_a_loaded_model_stays(desk: Desk) -> None:
    """Looks at the models folders do not undo it, and its own folder is followed like theirs."""
    await desk.scene.models.start()
    desk.put("m/1/model.onnx")
    await desk.load("m")
    await desk.scene.settle()
    assert desk.scene.told() == {"disk/1": "AVAILABLE", "m/1": "AVAILABLE"}
    desk.put("m/2/model.onnx")
    await desk.scene.settle()
    await desk.scene.models.drained()
    assert desk.scene.models.resolve("m").version == 2


@on_loop
async def test_a_model_whose_folder_vanishes_serves_on(desk: Desk) -> None:
    """Until it is unloaded: who deletes files of a loaded model has not asked for that."""
    await desk.scene.models.start()
    url = desk.put("m/model.onnx")
    await desk.load("m", url)
    shutil.rmtree(url)
    await desk.scene.settle()
    assert desk.scene.told()["m/1"] == "AVAILABLE"
    await desk.control.run(UnloadModel("m"))
    assert desk.scene.told() == {"disk/1": "AVAILABLE"}


@on_loop
async def test_loads_before_the_start_are_kept(desk: Desk) -> None:
    """A client that is there before the first scan is over loses nothing."""
    desk.put("m/model.onnx")
    await desk.load("m")
    await desk.scene.models.start()
    assert desk.scene.told() == {"disk/1": "AVAILABLE", "m/1": "AVAILABLE"}
    assert desk.scene.models.ready


@pytest.mark.parametrize("name", ["disk", "m", "front", "behind", "other"])
def test_a_name_that_is_taken_is_refused(desk: Desk, name: str) -> None:
    """By a model on disk, one loaded by call, a service, its model, or an alias."""

    @on_loop
    async def run() -> None:
        await desk.scene.models.start()
        url = desk.put("m/model.onnx")
        await desk.load("m", url)
        with pytest.raises(ModelExists, match=name):
            await desk.load(name, url)
        assert await desk.names() == ["m"]

    run()


@on_loop
async def test_a_name_is_taken_while_it_loads(desk: Desk) -> None:
    """Of two calls at once the second is refused, and the model is not listed yet."""
    await desk.scene.models.start()
    desk.put("m/model.onnx")
    desk.scene.stage.gate = asyncio.Event()
    first = asyncio.create_task(desk.load("m"))
    await desk.scene.until("m/1", "LOADING")
    with pytest.raises(ModelExists):
        await desk.load("m")
    assert await desk.names() == []
    with pytest.raises(ModelNotFound):
        await desk.control.run(UnloadModel("m"))
    desk.scene.stage.gate.set()
    await first
    assert await desk.names() == ["m"]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "é", "x" * 129, "a\n"])
def test_names_are_names(desk: Desk, name: str) -> None:
    """The same as everywhere: nothing that a path or a URL could read as more."""
    with pytest.raises(MalformedBody, match="not a model name"):
        asyncio.run(desk.load(name, str(desk.store)))


@pytest.mark.parametrize(
    "url", ["m", "s3://bucket/m", "file://other/m", "http://[", "file:m", "/m\x00", "file:///m%00"]
)
def test_urls_are_local_and_absolute(desk: Desk, url: str) -> None:
    """Anything else is malformed."""
    with pytest.raises(MalformedBody, match="absolute path"):
        asyncio.run(desk.load("m", url))


def test_nothing_outside_the_roots_is_loaded(desk: Desk) -> None:
    """However the URL puts it; what does not exist out there looks the same."""
    inside = desk.put("m/model.onnx")
    (desk.store / "link").symlink_to(desk.scene.root / "disk")
    sibling = f"{desk.store}-more/m"
    for url in (
        "/", "/etc", "/none", str(desk.store), f"{inside}/../..", str(desk.scene.root / "disk"), sibling,
        f"{desk.store}/link", f"file://{desk.store}/%2e%2e/{desk.scene.root.name}/disk",
    ):  # fmt: skip
        with pytest.raises(Forbidden, match="outside the folders"):
            asyncio.run(desk.load("x", url))


@on_loop
async def test_a_model_opens_nothing_outside_its_folder(desk: Desk) -> None:
    """Its versions may not be links to another model's."""
    await desk.scene.models.start()
    desk.put("a/1/model.onnx")
    (desk.store / "b").mkdir()
    (desk.store / "b/1").symlink_to("../a/1")
    with pytest.raises(LoadFailed, match="leads outside"):
        await desk.load("b")


@on_loop
async def test_a_url_of_no_folder_is_malformed(desk: Desk) -> None:
    """Inside the roots that may be said."""
    url = desk.put("m/model.onnx")
    for wrong in (f"{desk.store}/none", f"{url}/model.onnx"):
        with pytest.raises(MalformedBody, match="there is no folder"):
            await desk.load("m", wrong)


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (LoadFailed("model.onnx is not an ONNX model"), LoadFailed, "^model.onnx is not an ONNX model$"),
        (LoadFailed("the label 'out of memory' is given twice"), LoadFailed, "^the label 'out of memory' is given"),
        (MemoryError(), OutOfMemory, "^out of memory$"),
        (OutOfMemory("the card is full"), OutOfMemory, "^out of memory: the card is full$"),
        (RuntimeError("secret"), LoadFailed, "failed with RuntimeError; the server's log"),
    ],
)
def test_what_fails_to_load_is_forgotten(desk: Desk, failure: Exception, kind: type[GatewayError], text: str) -> None:
    """The caller gets the reason, told apart by whether memory was short; the same name may be tried again."""

    @on_loop
    async def run() -> None:
        await desk.scene.models.start()
        desk.put("m/model.onnx")
        desk.scene.stage.failures["m"] = failure
        with pytest.raises(kind, match=text):
            await desk.load("m")
        assert desk.scene.told() == {"disk/1": "AVAILABLE"}
        assert await desk.names() == []
        desk.scene.stage.failures.clear()
        await desk.load("m")
        assert await desk.names() == ["m"]

    run()


@pytest.mark.parametrize(("text", "reason"), [("x = = 1", "not TOML"), ("versions = [3]", "lists version 3")])
def test_a_broken_folder_is_told(desk: Desk, text: str, reason: str) -> None:
    """As it would be of a folder in the models folder, without its path."""

    @on_loop
    async def run() -> None:
        await desk.scene.models.start()
        desk.put("m/model.toml", text)
        desk.put("m/1/model.onnx")
        with pytest.raises(LoadFailed, match=reason) as caught:
            await desk.load("m")
        assert str(desk.store) not in str(caught.value)
        desk.put("empty/readme.txt")
        with pytest.raises(LoadFailed, match="holds neither"):
            await desk.load("empty")

    run()


@on_loop
async def test_only_so_many_are_loaded(scene: Scene) -> None:
    """Beyond, there is "no memory", which is what makes SageMaker unload another first."""
    desk = Desk(scene, Config(), most=2)
    await scene.models.start()
    for name in "abc":
        desk.put(f"{name}/model.onnx")
    await desk.load("a")
    await desk.load("b")
    with pytest.raises(OutOfMemory, match="2 models are loaded"):
        await desk.load("c")
    await desk.control.run(UnloadModel("a"))
    await desk.load("c")
    assert await desk.names() == ["b", "c"]


# Listing and unloading...


@on_loop
async def test_the_list_is_in_order_of_names(desk: Desk) -> None:
    """It has what was loaded by call and nothing else; one may be asked for."""
    await desk.scene.models.start()
    urls = {name: desk.put(f"{name}/model.onnx") for name in "bca"}
    for name, url in urls.items():
        await desk.load(name, url)
    assert await desk.names() == ["a", "b", "c"]
    assert await desk.control.run(ListModels("b")) == [ManagedModel("b", urls["b"])]
    for name in ("none", "disk", "front"):
        with pytest.raises(ModelNotFound, match=name):
            await desk.control.run(ListModels(name))


@on_loop
async def test_unloading_waits_for_what_runs(desk: Desk) -> None:
    """No new request is taken, those that run finish, and the memory is free when the call returns."""
    await desk.scene.models.start()
    url = desk.put("m/model.onnx")
    await desk.load("m", url)
    loaded = desk.scene.models.resolve("m")
    loaded.acquire()
    unloading = asyncio.create_task(desk.control.run(UnloadModel("m")))
    await desk.scene.until("m/1", "UNLOADING")
    with pytest.raises(ModelNotFound):
        desk.scene.models.resolve("m")
    with pytest.raises(NotReady, match="still being unloaded"):
        await desk.load("m", url)
    backend = desk.scene.stage.made[-1]
    assert (unloading.done(), backend.closed) == (False, False)
    loaded.release()
    assert await unloading == [ManagedModel("m", url)]
    assert backend.closed
    assert desk.scene.told() == {"disk/1": "AVAILABLE"}
    await desk.scene.settle()
    assert desk.scene.told() == {"disk/1": "AVAILABLE"}
    await desk.load("m", url)


@pytest.mark.parametrize("name", ["none", "disk", "front", "../x"])
def test_only_what_was_loaded_by_call_is_unloaded(desk: Desk, name: str) -> None:
    """The models folder's own models are the operator's."""

    @on_loop
    async def run() -> None:
        await desk.scene.models.start()
        with pytest.raises(ModelNotFound):
            await desk.control.run(UnloadModel(name))
        assert desk.scene.told() == {"disk/1": "AVAILABLE"}

    run()


@on_loop
async def test_closing_ends_what_was_loaded(desk: Desk) -> None:
    """Like everything else."""
    await desk.scene.models.start()
    desk.put("m/model.onnx")
    await desk.load("m")
    await desk.scene.models.close()
    assert [backend.closed for backend in desk.scene.stage.made] == [True, True]


# A model that has a folder of its own from the start...


@on_loop
async def test_single_models(scene: Scene) -> None:
    """A folder that is one model's own is served under the name that the configuration gives it."""
    scene.put("archive/model.onnx")
    models = Models([], "cpu", {"model": scene.root / "archive"})
    await models.start()
    assert (models.names(), models.ready) == (["model"], True)
    assert scene.stage.made[0].source.root == scene.root / "archive"
    await models.close()


@on_loop
async def test_a_single_model_comes_before_one_in_a_folder(scene: Scene) -> None:
    """Of two with one name, and the other is told of."""
    scene.put("m/1/model.onnx")
    scene.put(".own/2/model.onnx")
    models = Models([scene.root], "cpu", {"m": scene.root / ".own"})
    await models.start()
    assert models.resolve("m").version == 2
    assert models.problems == {"m": "lies in two models folders; the first of them counts"}
    await models.close()
