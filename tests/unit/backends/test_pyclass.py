"""A user's class in its workers: calls, streams, deadlines, crowds and ends, with real processes."""

import asyncio
import functools
import logging
import os
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import pyclass
from gateway.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidTensor,
    LoadFailed,
    NotReady,
    Overloaded,
    SignatureNotFound,
)
from gateway.interfaces import Backend, ModelSource
from gateway.types import InferenceRequest, InferenceResponse

PATIENCE = 20.0


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test as a plain function that runs on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE))

    return run


@asynccontextmanager
async def loaded(folder: Path, text: str, **options: Any) -> AsyncIterator[Backend]:
    """The class `Model` of that text, served for the length of a block."""
    (folder / "my.py").write_text(textwrap.dedent(text))
    source = ModelSource("m", 1, folder, folder)
    backend = await pyclass.load(source, pyclass.Config(entry="my:Model", **options))
    try:
        yield backend
    finally:
        await backend.close()


def request(value: Any, **more: Any) -> InferenceRequest:
    """The value as X; texts bare."""
    tensor = np.array(value, object if isinstance(value, str) else None)
    return InferenceRequest({"X": tensor}, **more)


def y(response: InferenceResponse) -> Any:
    """What came back."""
    return response.outputs["Y"].tolist()


async def parts_of(backend: Backend, asked: InferenceRequest) -> list[Any]:
    return [y(part) async for part in backend.stream(asked)]


async def complete(backend: Backend) -> None:
    """Wait until no worker is missing."""
    while backend.status.note:  # noqa: ASYNC110 - a status is looked at
        await asyncio.sleep(0.01)


ECHO = """
    class Model:
        def predict(self, X, names):
            return X
"""


@on_loop
async def test_numbers_and_texts_come_back(tmp_path: Path) -> None:
    """What a class returns is the answer, of the dtype that it has."""
    async with loaded(tmp_path, ECHO) as backend:
        for value in ([[1, 2]], [[1.5]], [True], "text", np.float32([1.5])):
            response = await backend.infer(request(value))
            assert y(response) == np.array(value).tolist()
        assert response.outputs["Y"].dtype == np.float32
        large = np.random.default_rng(0).random((64, 1000))
        assert np.array_equal((await backend.infer(request(large))).outputs["Y"], large)


@on_loop
async def test_a_dict_is_json_and_for_others_its_text(tmp_path: Path) -> None:
    """Protocols that know JSON find the value, those that know tensors find its text."""
    text = "class Model:\n    def predict(self, X, names):\n        return {'a': X, 'b': '\u00e4'}"
    async with loaded(tmp_path, text) as backend:
        response = await backend.infer(request([1, 2]))
    assert response.parameters["json"] == {"a": [1, 2], "b": "\u00e4"}
    assert y(response) == ['{"a": [1, 2], "b": "\u00e4"}']


@on_loop
async def test_calls_that_the_class_does_not_have(tmp_path: Path) -> None:
    """Unknown signatures, inputs and outputs are the caller's mistakes."""
    async with loaded(tmp_path, ECHO) as backend:
        with pytest.raises(SignatureNotFound):
            await backend.infer(request([1], signature="nothing"))
        with pytest.raises(InvalidTensor, match="no input 'Z'"):
            await backend.infer(InferenceRequest({"Z": np.zeros(1)}))
        with pytest.raises(InvalidTensor):
            await backend.infer(request([1], outputs=("Z",)))
        with pytest.raises(InvalidTensor, match="cannot be handed"):
            await backend.infer(InferenceRequest({"X": np.zeros(1, "M8[s]")}))


@on_loop
async def test_settings_reach_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, variables and the folder do; the gateway's own variables, which may be secrets, do not."""
    monkeypatch.setenv("SECRET", "s")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    text = """
        import os
        class Model:
            def __init__(self, size):
                self.size = size
            def predict(self, X, names):
                return {"size": self.size, "cwd": os.getcwd(), **{k: os.environ.get(k) for k in X.tolist()}}
    """
    async with loaded(tmp_path, text, parameters={"size": 3}, environment={"MINE": "m"}) as backend:
        response = await backend.infer(request(["SECRET", "MINE", "LC_ALL"]))
    assert response.parameters["json"] == {
        "size": 3, "cwd": str(tmp_path), "SECRET": None, "MINE": "m", "LC_ALL": "C.UTF-8"
    }  # fmt: skip


@on_loop
async def test_another_interpreter(tmp_path: Path) -> None:
    """`python` is taken relative to the model's folder or from PATH, and one that is not there fails the load."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "python").symlink_to(sys.executable)
    (tmp_path / "env" / "python").unlink()
    wrapper = tmp_path / "env" / "python"
    wrapper.write_text(f'#!/bin/sh\nWRAPPED=1 exec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    text = "import os\nclass Model:\n    def predict(self, X, names):\n        return os.environ.get('WRAPPED', '0')"
    async with loaded(tmp_path, text, python="env/python") as backend:
        assert y(await backend.infer(request([1]))) == "1"
    with pytest.raises(LoadFailed, match="no interpreter 'no-such-python'"):
        async with loaded(tmp_path, text, python="no-such-python"):
            pass


# Streams...

COUNTER = """
    import os, time
    class Model:
        def __init__(self):
            self.given = 0
            self.closed = 0
        def predict(self, X, names):
            return [self.given, self.closed]
        def stream(self, X, names):
            try:
                for number in range(int(X[0])):
                    self.given += 1
                    yield [number]
            except GeneratorExit:
                self.closed += 1
                raise
"""


@on_loop
async def test_parts_come_one_by_one(tmp_path: Path) -> None:
    """A generator's values are the parts, in order, however many there are."""
    async with loaded(tmp_path, COUNTER) as backend:
        assert await parts_of(backend, request([100])) == [[number] for number in range(100)]
        assert await parts_of(backend, request([0])) == []


@on_loop
async def test_a_slow_reader_holds_the_class_back(tmp_path: Path) -> None:
    """Parts are made only so far ahead of their reader, and meanwhile others are answered."""
    async with loaded(tmp_path, COUNTER) as backend:
        stream = backend.stream(request([1000]))
        await anext(stream)
        given = 0
        while (now := y(await backend.infer(request([0])))[0]) > given or now == 0:
            given = now
        assert given <= 16
        await stream.aclose()


@on_loop
async def test_closing_a_stream_closes_the_generator(tmp_path: Path) -> None:
    """Who leaves in the midst of a stream ends the work on it."""
    async with loaded(tmp_path, COUNTER) as backend:
        stream = backend.stream(request([1000]))
        await anext(stream)
        await stream.aclose()
        assert y(await backend.infer(request([0])))[1] == 1


@pytest.mark.parametrize(
    ("text", "parts", "whole"),
    [
        ("def predict(self, X, names):\n            yield 'a'\n            yield 'b'", ["a", "b"], "ab"),
        ("def stream(self, X, names):\n            yield [1]\n            yield [2, 3]", [[1], [2, 3]], [1, 2, 3]),
        ("async def predict(self, X, names):\n            yield 'a'\n            yield 'b'", ["a", "b"], "ab"),
        ("async def predict(self, X, names):\n            return X", [[1]], [1]),
        ("def predict(self, X, names):\n            return X", [[1]], [1]),
        ("def predict(self, X, names):\n            return iter(())", [], []),
    ],
)
@on_loop
async def test_streamed_or_whole(tmp_path: Path, text: str, parts: list[Any], whole: Any) -> None:
    """A class that yields can be asked for the whole, and one that returns for parts; async makes no difference."""
    async with loaded(tmp_path, f"class Model:\n        {text}") as backend:
        assert await parts_of(backend, request([1])) == parts
        assert y(await backend.infer(request([1]))) == whole


@on_loop
async def test_a_stream_may_fail_late(tmp_path: Path) -> None:
    """The parts before an exception arrive, then the exception does."""
    text = "class Model:\n    def predict(self, X, names):\n        yield 'a'\n        raise ValueError('late')"
    async with loaded(tmp_path, text) as backend:
        stream = backend.stream(request([1]))
        assert y(await anext(stream)) == "a"
        with pytest.raises(InferenceFailed, match="late"):
            await anext(stream)


@on_loop
async def test_a_stream_half_told_is_not_told_again(tmp_path: Path) -> None:
    """When its worker ends in the midst of a stream, the reader is told, and nothing is repeated."""
    text = "import os\nclass Model:\n    def predict(self, X, names):\n        yield 'a'\n        os._exit(4)"
    async with loaded(tmp_path, text) as backend:
        stream = backend.stream(request([1]))
        assert y(await anext(stream)) == "a"
        with pytest.raises(NotReady, match="exit code 4"):
            await anext(stream)


# Crowds...

SLOW = """
    import os, time
    class Model:
        def __init__(self):
            self.seen = []
        def predict(self, X, names):
            self.seen.append(float(X[0]))
            time.sleep(float(X[0]))
            return [str(os.getpid()), str(self.seen)]
"""


@on_loop
async def test_replicas_answer_side_by_side(tmp_path: Path) -> None:
    """Two workers take half the time, and both are used."""
    async with loaded(tmp_path, SLOW, replicas=2) as backend:
        started = time.monotonic()
        answers = await asyncio.gather(*(backend.infer(request([0.3])) for _ in range(4)))
        assert time.monotonic() - started < 1.1
        assert len({y(answer)[0] for answer in answers}) == 2


@on_loop
async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    """Beyond `most_waiting`, callers are sent away at once, those before them answered."""
    async with loaded(tmp_path, SLOW, most_waiting=2) as backend:
        calls = [asyncio.create_task(backend.infer(request([0.1]))) for _ in range(6)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in results if isinstance(one, Overloaded)]
    assert len(refused) == 2
    assert refused[0].retry_after
    assert sum(isinstance(one, InferenceResponse) for one in results) == 4


@on_loop
async def test_who_leaves_is_not_answered(tmp_path: Path) -> None:
    """A call that is given up before its turn never reaches the class, wherever it waits."""
    async with loaded(tmp_path, SLOW) as backend:
        first = asyncio.create_task(backend.infer(request([0.3])))
        others = [asyncio.create_task(backend.infer(request([0.001 * (1 + number)]))) for number in range(4)]
        await asyncio.sleep(0.1)
        for other in others:
            other.cancel()
        await first
        seen = y(await backend.infer(request([0.0])))[1]
    assert seen == "[0.3, 0.0]"


# Deadlines...


@on_loop
async def test_a_deadline_passes_in_the_queue(tmp_path: Path) -> None:
    """A call whose caller allows it less time than those before it need is answered in that time."""
    async with loaded(tmp_path, SLOW) as backend:
        first = asyncio.create_task(backend.infer(request([0.5])))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await backend.infer(request([0.0], deadline=time.monotonic() + 0.1))
        assert time.monotonic() - started < 0.4
        pid = y(await first)[0]
        await asyncio.sleep(1.2)
        assert y(await backend.infer(request([0.0]))) == [pid, "[0.5, 0.0]"]


@on_loop
async def test_a_late_answer_is_dropped(tmp_path: Path) -> None:
    """A class that is only slow keeps its worker; what comes too late goes nowhere."""
    async with loaded(tmp_path, SLOW, deadline_ms=200) as backend:
        pid = y(await backend.infer(request([0.0])))[0]
        with pytest.raises(DeadlineExceeded):
            await backend.infer(request([0.5]))
        await asyncio.sleep(0.4)
        assert y(await backend.infer(request([0.0])))[0] == pid


@on_loop
async def test_calls_behind_one_that_hangs_are_answered(tmp_path: Path) -> None:
    """They move to the next worker when the one that hangs is ended, and are not counted as made."""
    async with loaded(tmp_path, SLOW) as backend:
        hanging = asyncio.create_task(backend.infer(request([60.0], deadline=time.monotonic() + 0.1)))
        await asyncio.sleep(0.02)
        answer = await backend.infer(request([0.0]))
        with pytest.raises(DeadlineExceeded):
            await hanging
        assert y(answer)[1] == "[0.0]"


@on_loop
async def test_a_stream_has_its_time_for_each_part(tmp_path: Path) -> None:
    """Many parts may take longer than the deadline together, one may not; a slow reader is not the class's fault."""
    text = """
        import time
        class Model:
            def predict(self, X, names):
                for pause in X:
                    time.sleep(pause)
                    yield "p"
    """
    async with loaded(tmp_path, text, deadline_ms=300) as backend:
        assert await parts_of(backend, request([0.1] * 5)) == ["p"] * 5
        stream = backend.stream(request([0.0] * 3))
        await anext(stream)
        await asyncio.sleep(0.5)
        assert y(await anext(stream)) == "p"
        await stream.aclose()
        with pytest.raises(DeadlineExceeded):
            await parts_of(backend, request([0.0, 2.0]))


# Ends...


@on_loop
async def test_feedback_is_never_given_twice(tmp_path: Path) -> None:
    """A call with an effect is not made again when its worker ends."""
    text = """
        import os
        class Model:
            def send_feedback(self, features, names, reward, truth):
                with open("given.txt", "a") as file:
                    file.write("x")
                os._exit(1)
    """
    async with loaded(tmp_path, text) as backend:
        with pytest.raises(NotReady, match="may be repeated"):
            await backend.infer(request([1], signature="send_feedback"))
    assert (tmp_path / "given.txt").read_text() == "x"


@on_loop
async def test_a_missing_worker_shows_in_the_status(tmp_path: Path) -> None:
    """While one is being replaced the note says so; once it is back the note is empty."""
    text = "import os\nclass Model:\n    def predict(self, X, names):\n        os._exit(1)"
    async with loaded(tmp_path, text, retry=False) as backend:
        assert (backend.status.provider, backend.status.note) == ("python", "")
        with pytest.raises(NotReady):
            await backend.infer(request([1]))
        assert backend.status.note == "0 of 1 workers are ready"
        await complete(backend)


@on_loop
async def test_a_worker_that_cannot_come_back_is_told_of(tmp_path: Path) -> None:
    """Callers learn at once why there is no worker, and are answered again once it can start."""
    text = "import os\nclass Model:\n    def predict(self, X, names):\n        os._exit(1)"
    async with loaded(tmp_path, text, retry=False) as backend:
        (tmp_path / "my.py").write_text("import missing_library")
        for _ in range(2):
            with pytest.raises(NotReady):
                await backend.infer(request([1]))
        with pytest.raises(NotReady, match="No module named 'missing_library'"):
            await backend.infer(request([1]))
        (tmp_path / "my.py").write_text(textwrap.dedent(ECHO))
        await complete(backend)
        assert y(await backend.infer(request([1]))) == [1]


@on_loop
async def test_closing_ends_what_waits(tmp_path: Path) -> None:
    """Calls on a model that is closed fail as such, and its workers are gone."""
    async with loaded(tmp_path, SLOW) as backend:
        pid = int(y(await backend.infer(request([0.0])))[0])
        calls = [asyncio.create_task(backend.infer(request([30.0]))) for _ in range(4)]
        await asyncio.sleep(0.05)
        await backend.close()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in results] == [NotReady] * 4
        with pytest.raises(NotReady):
            await backend.infer(request([0.0]))
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@on_loop
async def test_one_bad_replica_fails_the_load(tmp_path: Path) -> None:
    """No worker is left of a class that only sometimes starts."""
    text = """
        import os
        try:
            os.mkdir("first")
        except FileExistsError:
            raise RuntimeError("only one of me")
        class Model:
            pass
    """
    with pytest.raises(LoadFailed, match="RuntimeError: only one of me"):
        async with loaded(tmp_path, text, replicas=2):
            pass


@on_loop
async def test_a_class_that_takes_too_long_to_start(tmp_path: Path) -> None:
    """A load that does not come to an end is given up."""
    with pytest.raises(LoadFailed, match=r"not ready after 0\.5 s"):
        async with loaded(tmp_path, "import time\ntime.sleep(60)", start_seconds=0.5):
            pass


@on_loop
async def test_output_is_logged_under_the_models_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a class prints, to either stream, is in the log; a traceback shows the class's own lines only."""
    text = """
        import sys
        class Model:
            def predict(self, X, names):
                print("to stdout")
                print("to stderr", file=sys.stderr)
                raise KeyError("gone")
    """
    with caplog.at_level(logging.INFO, "tensorgate.output"):
        async with loaded(tmp_path, text) as backend:
            with pytest.raises(InferenceFailed, match="gone"):
                await backend.infer(request([1]))
    said = [message.removeprefix("m version 1: ") for message in caplog.messages]
    assert said[:3] == ["to stdout", "to stderr", "Traceback (most recent call last):"]
    assert said[-1] == "KeyError: 'gone'"
    assert sum(line.startswith("  File") for line in said) == 1
