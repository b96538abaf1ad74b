"""A user's class in its workers: crowds, deadlines and ends, with real processes."""

import asyncio
import os
import textwrap
import time
from pathlib import Path

import pytest
from user_class import ECHO, complete, loaded, on_loop, parts_of, request, y

from backends._frames import END, ERROR
from gateway.errors import DeadlineExceeded, InferenceFailed, LoadFailed, NotReady, Overloaded
from gateway.types import InferenceResponse

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


# Crowds...


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
        calls = [asyncio.create_task(backend.infer(request([0.1]))) for _ in range(8)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in results if isinstance(one, Overloaded)]
    assert len(refused) == 2
    assert refused[0].retry_after
    assert sum(isinstance(one, InferenceResponse) for one in results) == 6


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


# What is no answer...

FALSE = """
    import json, os, struct, sys, time
    class Model:
        def predict(self, X, names):
            kind, rest = int(X[0]), [{}, {"parameters": [1]}][int(X[1])]
            for number in range(100):
                header = json.dumps({"id": number, **rest}).encode()
                os.write(int(sys.argv[1]), struct.pack("<BxxxIQ", kind, len(header), 0) + header)
            time.sleep(60)
"""


@pytest.mark.parametrize(("kind", "variant"), [(END, 0), (END, 1), (ERROR, 0)])
def test_a_false_answer_leaves_nobody_waiting(tmp_path: Path, kind: int, variant: int) -> None:
    """A class that writes to the connection itself is ended, and its caller told so at once."""

    async def call() -> None:
        async with loaded(tmp_path, FALSE, retry=False) as backend:
            with pytest.raises(NotReady, match="sent what is no answer"):
                await asyncio.wait_for(backend.infer(request([kind, variant])), 10)

    asyncio.run(call())


BROKEN = """
    import os
    class Model:
        def predict(self, X, names):
            if X[0]:
                raise [None, BrokenPipeError, ConnectionResetError, EOFError][int(X[0])]("the database is gone")
            return [str(os.getpid())]
"""


@on_loop
async def test_a_broken_connection_of_the_class_is_its_own_failure(tmp_path: Path) -> None:
    """What looks like the end of the gateway, but comes from the class, costs one call and no worker."""
    async with loaded(tmp_path, BROKEN) as backend:
        before = y(await backend.infer(request([0.0])))
        for kind in (1.0, 2.0, 3.0):
            with pytest.raises(InferenceFailed, match="the database is gone"):
                await backend.infer(request([kind]))
        assert before == y(await backend.infer(request([0.0])))
