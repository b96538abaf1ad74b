"""An open loop: requests come at their own pace, whether or not those before them have been answered."""

import asyncio
import json
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from live import LiveGateway, gateway

DEADLINE_SECONDS = 1.0
CONFIG = """
models_dir = "models"
[gateway]
device = "cpu"
access_log = "off"
[services.slow.limits]
concurrency = 1
queue = 20
deadline_ms = 1000
"""
CLASS = """
import time


class Slow:
    def predict(self, X, names):
        time.sleep(0.008)
        return X * 2
"""
HEAD = (
    b"POST /seldon/ns/slow/api/v1.0/predictions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
MOST_GROWTH = 64 << 20


class Run:
    """What came of a load."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.seconds: list[float] = []
        """Of answers with 200."""
        self.wrong = 0


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGateway]:
    """A model that takes eight milliseconds, one request at a time."""
    version = tmp_path / "models" / "slow" / "1"
    version.mkdir(parents=True)
    (version / "slow.py").write_text(CLASS)
    (version.parent / "model.toml").write_text('backend = "pyclass"\n[pyclass]\nentry = "slow:Slow"\n')
    (tmp_path / "gateway.toml").write_text(CONFIG)
    with gateway(tmp_path / "gateway.toml") as running:
        yield running


class Client:
    """Keeps connections open, and costs little: what is measured is the gateway, on the same machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, run: Run, number: int) -> None:
        """Send one request and note what came of it."""
        reader, writer = await self._connection()
        body = b'{"data":{"ndarray":[[%d]]}}' % number
        begun = time.perf_counter()
        writer.write(HEAD % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        answer = await reader.readexactly(length)
        seconds = time.perf_counter() - begun
        self._idle.append((time.perf_counter(), reader, writer))
        status = int(head[9:12])
        run.statuses[status] += 1
        if status == 200:
            run.seconds.append(seconds)
            run.wrong += json.loads(answer)["data"]["ndarray"] != [[number * 2]]

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            since, reader, writer = self._idle.pop()
            # The gateway closes connections that are idle for five seconds; what it is about to close is not used.
            if time.perf_counter() - since < 1.0:
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        """Close what is open."""
        for _, _, writer in self._idle:
            writer.close()


async def _closed(live: LiveGateway, seconds: float) -> float:
    """What it can do: answers a second to callers that each wait for theirs."""
    run, client, until = Run(), Client(live.port), time.perf_counter() + seconds

    async def caller() -> None:
        while time.perf_counter() < until:
            await client.ask(run, 7)

    await asyncio.gather(*(caller() for _ in range(4)))
    client.close()
    return run.statuses[200] / seconds


async def _open(live: LiveGateway, rate: float, seconds: float) -> Run:
    """So many requests a second, each sent when its moment has come."""
    run, client, begun, sent = Run(), Client(live.port), time.perf_counter(), 0
    async with asyncio.TaskGroup() as tasks:
        while (passed := time.perf_counter() - begun) < seconds:
            for number in range(sent, math.ceil(passed * rate)):
                tasks.create_task(client.ask(run, number))
                sent = number + 1
            await asyncio.sleep(0.002)
    client.close()
    return run


def overload(live: LiveGateway, seconds: float) -> tuple[float, Run]:
    """Its capacity, and what came of half as much again; memory must stay as it was."""
    capacity = asyncio.run(_closed(live, min(seconds, 5.0)))
    asyncio.run(_open(live, 1.5 * capacity, min(seconds, 3.0)))
    process = psutil.Process(live.process.pid)
    before = process.memory_info().rss
    run = asyncio.run(_open(live, 1.5 * capacity, seconds))
    live.wait_for_metric("tensorgate_requests_in_flight", 0)
    grown = process.memory_info().rss - before
    percentiles = statistics.quantiles(run.seconds, n=100)
    print(  # noqa: T201 - the figures of the run
        f"capacity {capacity:.0f}/s, goodput {run.statuses[200] / seconds / capacity:.0%}, {dict(run.statuses)}, "
        f"p50 {percentiles[49] * 1e3:.0f} ms, p99 {percentiles[98] * 1e3:.0f} ms, grown by {grown >> 10} KiB"
    )
    assert grown < MOST_GROWTH
    assert run.statuses.keys() <= {200, 429, 503}
    assert run.statuses[200] < run.statuses.total()
    assert run.wrong == 0
    return capacity, run


def test_a_model_at_half_as_much_again_as_it_can_do(live: LiveGateway) -> None:
    """Who cannot be served is told so at once; the others are answered, and rightly."""
    _, run = overload(live, 2.0)
    assert run.statuses[200] > 50


@pytest.mark.soak
def test_nor_for_a_minute(live: LiveGateway) -> None:
    """Nine tenths of what it can do are done, and who is taken is answered within the deadline."""
    capacity, run = overload(live, 60.0)
    assert run.statuses[200] / 60.0 >= 0.9 * capacity
    assert statistics.quantiles(run.seconds, n=100)[98] <= DEADLINE_SECONDS
