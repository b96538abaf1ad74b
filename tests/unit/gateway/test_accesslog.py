"""The access log."""

import asyncio
import errno
import io
import json
from typing import Any

from gateway.accesslog import AccessLog
from gateway.trace import Trace


def ended(request_id: str, status: int, path: str) -> Trace:
    """A request that was answered after 12.3 ms."""
    made = Trace(request_id, "10.0.0.1", "POST", path)
    made.service, made.version = "digits", 3
    made.status, made.seconds = status, 0.0123
    return made


async def run_and_stop(log: AccessLog) -> None:
    """A log's whole life."""
    task = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_log_is_one_json_line_a_request() -> None:
    """What was gathered is written at the latest when the log ends."""
    out = io.BytesIO()
    log = AccessLog(out)
    log.add(ended("id-1", 200, "/v1/models/" + "x" * 1000))
    log.add(ended("id-2", 404, "/nothing"))
    asyncio.run(run_and_stop(log))
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert len(first["path"]) == 256
    assert {key: first[key] for key in ("id", "status", "ms", "service", "version")} == {
        "id": "id-1",
        "status": 200,
        "ms": 12.3,
        "service": "digits",
        "version": 3,
    }
    assert (second["id"], second["status"]) == ("id-2", 404)


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    """Its lines are counted, and the count is written once there is room."""

    class Disk(io.BytesIO):
        full = True

        def write(self, data: Any) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "no space left")
            return super().write(data)

    out = Disk()
    log = AccessLog(out)
    for _ in range(3):
        log.add(ended("id-1", 200, "/"))
    asyncio.run(run_and_stop(log))
    out.full = False
    log.add(ended("id-2", 200, "/"))
    asyncio.run(run_and_stop(log))
    told, line = (json.loads(line) for line in out.getvalue().splitlines())
    assert (told, line["id"]) == ({"dropped_lines": 3}, "id-2")


def test_a_stuck_log_drops_lines_and_says_how_many() -> None:
    """Memory stays bounded when nobody reads the log."""
    out = io.BytesIO()
    log = AccessLog(out)
    log._MOST = 2
    for _ in range(5):
        log.add(ended("id-1", 200, "/"))
    asyncio.run(run_and_stop(log))
    lines = out.getvalue().splitlines()
    assert json.loads(lines[0]) == {"dropped_lines": 3}
    assert len(lines) == 3
