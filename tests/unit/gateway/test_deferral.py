"""Inferences that are run later: how many wait and run, what becomes of each, and stopping."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from scene import on_loop

from gateway.config import Config, LimitsConfig, ResultsConfig
from gateway.deferral import Deferrals
from gateway.errors import Forbidden, GatewayError, MalformedBody, Overloaded
from gateway.results import OWN_FILE, ResultsFolder


def deferrals(base: Path, **keys: object) -> Deferrals:
    """With the folder `results` below `base`."""
    config = Config(results=ResultsConfig(dir="results", **keys), limits=LimitsConfig())  # type: ignore[arg-type]
    made = Deferrals(config, base)
    made.prepare()
    return made


def told(error: Exception) -> bytes:
    """The error's class and text, as a body."""
    return f"{type(error).__name__}: {error}".encode()


async def answer() -> bytes:
    """An inference that needs no time."""
    return b"answer"


async def begin(waiting: Deferrals, name: str, run: Callable[..., object] = answer, size: int = 1) -> None:
    """Accept one inference."""
    waiting.admit(b"x" * size, None)
    waiting.start(await waiting.hold(name), size, run, told)  # type: ignore[arg-type]


def names(base: Path) -> list[str]:
    """What lies in the folder, marks included."""
    return sorted(path.name for path in (base / "results").iterdir() if path.name != OWN_FILE)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what a thread does on disk."""
    while not condition():  # noqa: ASYNC110 - a file tells nobody that it is there
        await asyncio.sleep(0.005)


async def kept(path: Path) -> bytes:
    """The answer once it is there."""
    await until(path.exists)
    return await asyncio.to_thread(path.read_bytes)


@on_loop
async def test_an_answer_or_an_error_is_kept(tmp_path: Path) -> None:
    """Under the name that the client was told."""

    async def fails() -> bytes:
        raise MalformedBody("row 1")

    waiting = deferrals(tmp_path)
    await begin(waiting, "good")
    await begin(waiting, "bad", fails)
    assert await kept(tmp_path / "results/good.out") == b"answer"
    assert await kept(tmp_path / "results/bad.error") == b"MalformedBody: row 1"
    await waiting.close(10)
    assert names(tmp_path) == ["bad.error", "good.out"]
    assert waiting.pending == 0


@on_loop
async def test_only_so_many_run(tmp_path: Path) -> None:
    """The others wait for their turn, in order."""
    gate, running = asyncio.Event(), []

    def run(name: str) -> Callable[[], object]:
        async def wait() -> bytes:
            running.append(name)
            await gate.wait()
            return b""

        return wait

    waiting = deferrals(tmp_path, at_once=2)
    for name in "abc":
        await begin(waiting, name, run(name))
    await asyncio.sleep(0)
    assert (running, waiting.pending) == (["a", "b"], 3)
    gate.set()
    await waiting.close(10)
    assert running == ["a", "b", "c"]
    assert names(tmp_path) == ["a.out", "b.out", "c.out"]


@pytest.mark.parametrize(
    ("keys", "text"), [({"most_pending": 2}, "2 inferences wait"), ({"pending_bytes": 24}, "hold too many bytes")]
)
def test_only_so_many_wait(tmp_path: Path, keys: dict[str, int], text: str) -> None:
    """Beyond a number or a size the call is refused, until there is room again."""

    @on_loop
    async def run() -> None:
        gate = asyncio.Event()

        async def wait() -> bytes:
            await gate.wait()
            return b""

        waiting = deferrals(tmp_path, **keys)
        await begin(waiting, "a", wait, 10)
        await begin(waiting, "b", wait, 10)
        with pytest.raises(Overloaded, match=text):
            waiting.admit(b"x" * 10, None)
        gate.set()
        await kept(tmp_path / "results/b.out")
        await until(lambda: not waiting.pending)
        await begin(waiting, "c", wait, 10)
        await waiting.close(10)

    run()


@on_loop
async def test_an_inference_has_its_time(tmp_path: Path) -> None:
    """After which its error is kept, and the next has its turn."""
    waiting = deferrals(tmp_path, run_seconds=0.05, at_once=1)
    await begin(waiting, "slow", asyncio.Event().wait)
    await begin(waiting, "next")
    assert (await kept(tmp_path / "results/slow.error")).startswith(b"DeadlineExceeded: ")
    assert await kept(tmp_path / "results/next.out") == b"answer"
    await waiting.close(10)


@pytest.mark.parametrize("hurried", [False, True])
def test_what_is_stopped_says_so(tmp_path: Path, hurried: bool) -> None:
    """When the time to drain is over, or a second signal came: running or waiting, each gets its error."""

    @on_loop
    async def run() -> None:
        waiting = deferrals(tmp_path, at_once=1)
        await begin(waiting, "running", asyncio.Event().wait)
        await begin(waiting, "waiting")
        await asyncio.sleep(0)
        if hurried:
            waiting.hurry()
        await waiting.close(60 if hurried else 0.01)
        for name in ("running", "waiting"):
            assert (tmp_path / f"results/{name}.error").read_bytes().startswith(b"NotReady: the server was stopped")
        assert names(tmp_path) == ["running.error", "waiting.error"]

    run()


@on_loop
async def test_an_answer_that_cannot_be_written_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And its error is kept in its place, if that can be."""
    real, tries = ResultsFolder.keep, []

    def keep(self: ResultsFolder, *args: object) -> None:
        tries.append(args[1])
        if args[1] == "out":
            raise OSError(28, "No space left on device")
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ResultsFolder, "keep", keep)
    waiting = deferrals(tmp_path)
    await begin(waiting, "a")
    assert await kept(tmp_path / "results/a.error") == b"InferenceFailed: the answer could not be written"
    await waiting.close(10)
    assert "the answer of a could not be written" in caplog.text


@pytest.mark.parametrize(
    ("body", "uri", "kind", "text"),
    [
        (b"1", "s3://b/x", MalformedBody, "either in the body or by its location, not both"),
        (b"", None, MalformedBody, "either in the body or by its location$"),
        (b"", "s3://b/x", MalformedBody, "under no known prefix; there are: none"),
    ],
)
def test_a_call_gives_its_input_in_one_way(
    tmp_path: Path, body: bytes, uri: str | None, kind: type[GatewayError], text: str
) -> None:
    """In the body or by its location."""
    with pytest.raises(kind, match=text):
        deferrals(tmp_path).admit(body, uri)


def test_without_a_folder_nothing_is_deferred(tmp_path: Path) -> None:
    """The text names the key to set, and nothing is made on disk."""
    waiting = Deferrals(Config(), tmp_path)
    waiting.prepare()
    with pytest.raises(Forbidden, match=r"results\.dir"):
        waiting.admit(b"1", None)
    assert list(tmp_path.iterdir()) == []


@on_loop
async def test_cleaning_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start, and again each time that answers may have grown old; what a dead process left is told."""
    caplog.set_level(logging.INFO, "tensorgate.results")
    waiting = deferrals(tmp_path, keep_seconds=0.01)
    place = tmp_path / "results"
    for name in ("old.out", ".lost.pending"):
        (place / name).touch()
        os.utime(place / name, (0, 0))
    cleaning = asyncio.create_task(waiting.clean())
    await until(lambda: not names(tmp_path))
    (place / "later.out").touch()
    await until(lambda: not names(tmp_path))
    cleaning.cancel()
    assert "1 deferred inferences of another process" in caplog.text
