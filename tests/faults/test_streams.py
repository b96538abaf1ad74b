"""Many streams of a language model at a time, some of them left at random: none is wrong, and nothing stays behind."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from live import LiveGateway, gateway

MODELS = Path(__file__).resolve().parents[2] / "configs" / "models"
CHAT = "/v1/chat/completions"
AT_ONCE = 32
SLOTS, QUEUE, CHOICES = 8, 32, 8
SEEDS = 48
LEAVING = 0.4
"""How many of the streams are left before their end."""
MOST_LAG_SECONDS = 2.0
"""What no other request may wait beside the streams, however busy the machine is."""
MOST_GROWTH = 24 << 20


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGateway]:
    """The demo's language model, and nothing else."""
    (tmp_path / "gateway.toml").write_text(
        f'[gateway]\ndevice = "cpu"\naccess_log = "off"\n[models]\ntinychat = "{MODELS / "tinychat"}"\n'
    )
    with gateway(tmp_path / "gateway.toml") as running:
        yield running


def _body(seed: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Tell me a story."}]
    return {"model": "tinychat", "messages": messages, "temperature": 1, "seed": seed} | more


class Crowd:
    """Callers that take one seed after the other, and now and then leave in the middle."""

    def __init__(self, client: httpx.AsyncClient, seed: int) -> None:
        self._client = client
        self._dice = random.Random(seed)
        self._texts: dict[int, str] = {}
        self.left = self.read = 0

    async def learn(self) -> None:
        """What each seed says, unstreamed and one after the other."""
        for seed in range(SEEDS):
            reply = await self._client.post(CHAT, json=_body(seed))
            self._texts[seed] = reply.json()["choices"][0]["message"]["content"]

    async def run(self, requests: int) -> None:
        """So many streams, 32 at a time."""
        seeds = iter([self._dice.randrange(SEEDS) for _ in range(requests)])

        async def caller() -> None:
            for seed in seeds:
                await self._stream(seed)

        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))

    async def _stream(self, seed: int) -> None:
        leaves = self._dice.randrange(120) if self._dice.random() < LEAVING else None
        text = ""
        async with self._client.stream("POST", CHAT, json=_body(seed, stream=True)) as reply:
            assert reply.status_code == 200
            async for line in reply.aiter_lines():
                if line == "data: [DONE]":
                    break
                if line.startswith("data: "):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                if leaves is not None and len(text) >= leaves:
                    assert self._texts[seed].startswith(text)
                    self.left += 1
                    return
        assert self._texts[seed] == text
        self.read += 1


async def _lag(client: httpx.AsyncClient, waits: list[float]) -> None:
    """Ask for what is answered on the event loop at once, again and again."""
    while True:
        began = time.perf_counter()
        assert (await client.get("/healthz")).status_code == 200
        waits.append(time.perf_counter() - began)
        await asyncio.sleep(0.002)


async def _all_free(client: httpx.AsyncClient) -> None:
    """As many answers as there are slots and places in the queue are taken in, and no more."""
    long = _body(1, ignore_eos=True, max_tokens=400, n=CHOICES)
    most = (SLOTS + QUEUE) // CHOICES
    replies = await asyncio.gather(*(client.post(CHAT, json=long) for _ in range(most + 1)))
    statuses = sorted(reply.status_code for reply in replies)
    assert [200] * most + [429] == statuses


def _check(live: LiveGateway, warm: int, requests: int) -> None:
    """Run so many streams, and see what they leave."""
    process = psutil.Process(live.process.pid)
    seed = random.SystemRandom().randrange(1 << 32)
    waits: list[float] = []

    async def main() -> tuple[Crowd, int, float]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=live.url, timeout=60, limits=limits) as client:
            crowd = Crowd(client, seed)
            await crowd.learn()
            await crowd.run(warm)
            before = process.memory_info().rss
            watching = asyncio.ensure_future(_lag(client, waits))
            began = time.perf_counter()
            await crowd.run(requests)
            seconds = time.perf_counter() - began
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await _all_free(client)
            return crowd, process.memory_info().rss - before, seconds

    crowd, grown, seconds = asyncio.run(main())
    live.wait_for_metric("tensorgate_requests_in_flight", 0)
    waits.sort()
    figures = {
        "seed": seed,
        "streams": warm + requests,
        "seconds": round(seconds, 1),
        "read": crowd.read,
        "left": crowd.left,
        "grown_kib": grown >> 10,
        "lag_ms_p50": round(waits[len(waits) // 2] * 1e3, 1),
        "lag_ms_p99": round(waits[len(waits) * 99 // 100] * 1e3, 1),
        "lag_ms_most": round(waits[-1] * 1e3, 1),
    }
    print(figures)  # noqa: T201 - the figures of the run
    assert crowd.read > crowd.left > 0, figures
    assert grown < MOST_GROWTH, figures
    assert waits[-1] < MOST_LAG_SECONDS, figures


def test_streams_that_are_left_at_random(live: LiveGateway) -> None:
    """Of 32 streams at a time each says what its seed says, and those that are left leave no slot and no memory."""
    _check(live, 64, 128)


@pytest.mark.soak
def test_nor_do_some_thousands(live: LiveGateway) -> None:
    """Memory is flat over a thousand streams, and over some thousands."""
    _check(live, 1000, 4000)
