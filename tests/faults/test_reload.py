"""Models that come, change, break and go under load: no request fails, and nobody is answered by what is gone."""

import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import numpy as np
import onnx
import psutil
import pytest
from live import LiveGateway, gateway
from onnx_models import external, node, value, weight
from onnx_models import model as model_of

PATIENCE_SECONDS = 15.0
PACE_SECONDS = 0.002
CLIENTS = 3
CONFIG = """
models_dir = "models"
[gateway]
protocols = ["tfserving"]
device = "cpu"
poll_seconds = 0.05
access_log = "off"
"""


def adds(number: float, padding: int = 0) -> bytes:
    """A model of y = x + number, so that an answer tells which model gave it."""
    weights = [weight("number", np.float32([number])), weight("padding", np.zeros(padding, np.uint8))]
    return _adds([node("Identity", ["padding"], ["unused"])], weights)


def _adds(more: list[onnx.NodeProto], weights: list[onnx.TensorProto]) -> bytes:
    nodes = [node("Add", ["x", "number"], ["y"]), *more]
    return bytes(model_of(nodes, [value("x", "float32")], [value("y", "float32")], weights).SerializeToString())


class Folder:
    """One model on disk, and what the gateway says of it."""

    def __init__(self, live: LiveGateway, root: Path, name: str) -> None:
        self.url = f"{live.url}/v1/models/{name}"
        self.path = root / name

    def put(self, version: int, model: bytes) -> None:
        """Put the file in place at once."""
        folder = self.path / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".incoming").write_bytes(model)
        (folder / ".incoming").rename(folder / "model.onnx")

    def told(self) -> dict[int, tuple[str, str]]:
        """Version to state and error; empty once the model is unknown."""
        reply = httpx.get(self.url)
        assert reply.status_code in (200, 404), reply.text
        return {
            int(one["version"]): (one["state"], one["status"]["error_message"])
            for one in reply.json().get("model_version_status", [])
        }

    def until(self, condition: Callable[[dict[int, tuple[str, str]]], bool]) -> dict[int, tuple[str, str]]:
        """Wait until what the gateway tells fulfils the condition."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while not condition(told := self.told()):
            assert time.monotonic() < limit, told
            time.sleep(0.01)
        return told

    def until_states(self, expected: dict[int, str]) -> None:
        """Wait until the versions are in these states."""
        self.until(lambda told: {number: state for number, (state, _) in told.items()} == expected)


class Load:
    """A steady load from a few keep-alive clients; leaving the block fails if a request did."""

    def __init__(self, live: LiveGateway, path: str) -> None:
        self._port = live.port
        self._path = path
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]
        self.answers: list[tuple[float, float]] = []
        """When each request was sent, and what the model added."""
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.until(len(self._threads))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if error is None:
            assert self.failures == []

    def until(self, more: int) -> None:
        """Wait for that many more answers."""
        wanted, limit = len(self.answers) + more, time.monotonic() + PATIENCE_SECONDS
        while len(self.answers) < wanted and not self.failures:
            assert time.monotonic() < limit
            time.sleep(0.005)

    def since(self, moment: float) -> set[float]:
        """What answered requests that were sent after the moment; waits until there are some."""
        self.until(4 * CLIENTS)
        return {number for sent, number in self.answers if sent > moment}

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)
        while not self._stop.wait(PACE_SECONDS):
            sent = time.monotonic()
            try:
                connection.request("POST", self._path, b'{"instances": [100.0]}')
                reply = connection.getresponse()
                body = reply.read()
            except OSError as error:
                self.failures.append(repr(error))
                break
            if reply.status != 200:
                self.failures.append(f"{reply.status} {body!r}")
                break
            self.answers.append((sent, json.loads(body)["predictions"][0] - 100.0))
        connection.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models folder."""
    folder = tmp_path_factory.mktemp("reload") / "models"
    folder.mkdir()
    (folder.parent / "config.toml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def live(root: Path) -> Iterator[LiveGateway]:
    """A gateway that watches it."""
    with gateway(root.parent / "config.toml") as running:
        yield running


@pytest.fixture
def model(request: pytest.FixtureRequest, live: LiveGateway, root: Path) -> Folder:
    """A model of the test's own, whose version 1 adds 1."""
    folder = Folder(live, root, request.node.name.replace("[", "-").rstrip("]"))
    folder.put(1, adds(1))
    folder.until_states({1: "AVAILABLE"})
    return folder


def load(live: LiveGateway, model: Folder, version: int | None = None) -> Load:
    """A load on the model, or on one version of it."""
    pinned = f"/versions/{version}" if version else ""
    return Load(live, f"/v1/models/{model.path.name}{pinned}:predict")


def test_new_versions(live: LiveGateway, model: Folder) -> None:
    """Version after version takes over, and the one before never answers again."""
    with load(live, model) as running:
        for version in (2, 3, 4, 5):
            model.put(version, adds(version))
            model.until(lambda told, version=version: told.get(version - 1, ("",))[0] in ("UNLOADING", "END"))
            assert running.since(time.monotonic()) == {version}
        model.until(lambda told: {state for state, _ in told.values()} == {"AVAILABLE", "END"})
    assert [number for _, number in running.answers[:3]] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("way", ["renamed", "written"])
def test_changed_in_place(live: LiveGateway, model: Folder, way: str) -> None:
    """A version whose file changes is AVAILABLE throughout; what is half written answers nobody."""
    with load(live, model) as running:
        for number in (11, 12, 13):
            fresh = adds(number, padding=300_000)
            if way == "renamed":
                model.put(1, fresh)
            else:
                with (model.path / "1" / "model.onnx").open("wb") as file:
                    for start in range(0, len(fresh), 100_000):
                        file.write(fresh[start : start + 100_000])
                        file.flush()
                        running.until(20)
            limit = time.monotonic() + PATIENCE_SECONDS
            while running.since(time.monotonic()) != {number}:
                assert [state for state, _ in model.told().values()] == ["AVAILABLE"]
                assert time.monotonic() < limit
    assert {number for _, number in running.answers} == {1, 11, 12, 13}


BROKEN = {
    "empty": b"",
    "garbage": b"\0not a model" * 1000,
    "truncated": adds(2, padding=100_000)[:50_000],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken(live: LiveGateway, model: Folder, kind: str) -> None:
    """What cannot be loaded says why while the old one goes on, as a new version and in place; then it is mended."""
    with load(live, model) as running:
        model.put(2, BROKEN[kind])
        told = model.until(lambda told: bool(told.get(2, ("", ""))[1]))
        assert (told[1], told[2][0]) == (("AVAILABLE", ""), "END")
        assert str(model.path) not in told[2][1]
        model.put(1, BROKEN[kind])  # not wanted, so not looked at
        model.put(2, adds(2))
        model.until_states({1: "END", 2: "AVAILABLE"})
        model.put(2, BROKEN[kind])
        told = model.until(lambda told: bool(told[2][1]))
        assert told[2][0] == "AVAILABLE"
        assert running.since(time.monotonic()) == {2}
        model.put(2, adds(3))
        model.until(lambda told: told[2] == ("AVAILABLE", ""))
    assert {number for _, number in running.answers} <= {1, 2, 3}


def test_confined(live: LiveGateway, model: Folder, root: Path) -> None:
    """A version that leads out of the models folder, by a link or in the model file, is refused by name."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "model.onnx").write_bytes(adds(666))
    (model.path / "2").symlink_to(outside)
    assert model.until(lambda told: 2 in told and bool(told[2][1]))[2] == ("END", "leads outside the models folder")
    (model.path / "2").unlink()
    model.put(3, _adds([], [external("number", np.float32([1]), "../../../outside/model.onnx")]))
    state, error = model.until(lambda told: 3 in told and bool(told[3][1]))[3]
    assert state == "END"
    assert "outside" in error


def test_removed(live: LiveGateway, model: Folder) -> None:
    """A version that is removed hands over to the others, and does not answer once it is told to be gone."""
    (model.path / "model.toml").write_text('versions = "all"')
    for version in (2, 3):
        model.put(version, adds(version))
    model.until_states({1: "AVAILABLE", 2: "AVAILABLE", 3: "AVAILABLE"})
    with load(live, model) as running, load(live, model, version=1) as pinned:
        for version in (3, 2):
            shutil.rmtree(model.path / str(version))
            told = model.until(lambda told, version=version: told[version][0] != "AVAILABLE")
            assert told[version][0] in ("UNLOADING", "END")
            assert running.since(time.monotonic()) == {version - 1}
            reply = httpx.post(f"{model.url}/versions/{version}:predict", json={"instances": [1.0]})
            assert reply.status_code == 404
    assert {number for _, number in pinned.answers} == {1}


def test_whole_model_goes_and_comes(live: LiveGateway, model: Folder) -> None:
    """A model that is removed becomes unknown, comes back when it is put back, and its neighbour notices nothing."""
    neighbour = Folder(live, model.path.parent, "neighbour")
    neighbour.put(1, adds(7))
    neighbour.until_states({1: "AVAILABLE"})
    with load(live, neighbour) as running:
        for _ in range(2):
            model.path.rename(model.path.with_name(".away"))
            model.until(lambda told: told == {})
            reply = httpx.post(f"{model.url}:predict", json={"instances": [1.0]})
            assert reply.status_code == 404
            model.path.with_name(".away").rename(model.path)
            model.until_states({1: "AVAILABLE"})
            reply = httpx.post(f"{model.url}:predict", json={"instances": [1.0]})
            assert reply.json() == {"predictions": [2.0]}
    assert {number for _, number in running.answers} == {7}


def test_memory_returns(live: LiveGateway, model: Folder) -> None:
    """Loads, failed loads and unloads by the hundred leave neither memory nor open files behind."""
    (model.path / "model.toml").write_text('versions = "all"')
    good, bad = adds(5, padding=2_000_000), adds(5, padding=2_000_000)[:-1_000_000]
    process = psutil.Process(live.process.pid)
    used: list[tuple[int, int]] = []
    for turn in range(7):
        for version in range(100 * turn + 2, 100 * turn + 27):
            model.put(version, good)
            model.put(version + 25, bad)
        model.until(lambda told, turn=turn: _done(told, 100 * turn + 2, "AVAILABLE", 25))
        model.until(lambda told, turn=turn: _done(told, 100 * turn + 27, "END", 25))
        for version in range(100 * turn + 2, 100 * turn + 52):
            shutil.rmtree(model.path / str(version))
        model.until(lambda told: [state for state, _ in told.values()].count("AVAILABLE") == 1 and len(told) == 9)
        used.append((process.memory_info().rss, len(os.listdir(f"/proc/{process.pid}/fd"))))
    # The allocator keeps what it once had, and not the same each time: a leak shows in the least of the last turns.
    before, after = used[1:4], used[4:]
    assert min(used for used, _ in after) - max(used for used, _ in before) < 32 << 20
    assert min(files for _, files in after) - max(files for _, files in before) < 5


def _done(told: dict[int, tuple[str, str]], first: int, state: str, count: int) -> bool:
    return all(told.get(number, ("",))[0] == state for number in range(first, first + count))
