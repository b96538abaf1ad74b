"""Where bodies are decoded: small and quick ones here, the others on a thread, few at a time."""

import asyncio
import threading

import pytest

from gateway.interfaces import Infer
from gateway.offload import AT_ONCE, LARGE_BYTES, SLOW_BYTES, Offload
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target

METADATA = ModelMetadata("m", 1, "test", {})
HERE = threading.get_ident()


class Decoder:
    """Notes on which thread it ran, and whether quickly."""

    def __init__(self, *, quick: bool = True) -> None:
        self.ran: list[tuple[str, bool]] = []
        self._quick = quick

    def decode(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        """The exact way."""
        self.ran.append(("exact", threading.get_ident() == HERE))
        return InferenceRequest({})

    def quickly(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest | None:
        """The quick way, which may decline."""
        self.ran.append(("quick", threading.get_ident() == HERE))
        return InferenceRequest({}) if self._quick else None

    def operation(self, *, with_quick: bool = True) -> Infer:
        """An operation that decodes with it."""
        quickly = self.quickly if with_quick else None
        return Infer(method="POST", path="/", decode=self.decode, decode_quickly=quickly, encode=_encode)


def _encode(response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
    raise AssertionError


@pytest.mark.parametrize(
    ("size", "quick", "with_quick", "ran"),
    [
        (10, True, True, [("exact", True)]),
        (SLOW_BYTES, True, True, [("quick", True)]),
        (SLOW_BYTES, False, True, [("quick", True), ("exact", False)]),
        (SLOW_BYTES, True, False, [("exact", True)]),
        (LARGE_BYTES, True, True, [("exact", False)]),
        (LARGE_BYTES, True, False, [("exact", False)]),
    ],
)
def test_size_and_kind_decide_where_a_body_is_decoded(
    size: int, quick: bool, with_quick: bool, ran: list[tuple[str, bool]]
) -> None:
    """Whatever may take long leaves the event loop; the common case of a body that is not large stays."""
    decoder = Decoder(quick=quick)
    operation = decoder.operation(with_quick=with_quick)
    call = Call("POST", "/", body=bytes(size))
    asyncio.run(Offload().decode(operation, call, Target(), METADATA))
    assert decoder.ran == ran


def test_work_that_nobody_waits_for_keeps_its_turn() -> None:
    """A thread cannot be stopped; so a caller that leaves frees no turn until its work is done."""
    running = threading.Semaphore(0)
    go_on = threading.Event()
    started = 0

    def work() -> None:
        nonlocal started
        started += 1
        running.release()
        assert go_on.wait(10)

    async def leave() -> tuple[int, int]:
        offload = Offload()
        tasks = [asyncio.create_task(offload.run(LARGE_BYTES, work)) for _ in range(AT_ONCE)]
        for _ in tasks:
            await asyncio.to_thread(running.acquire)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        last = asyncio.create_task(offload.run(LARGE_BYTES, work))
        await asyncio.sleep(0.05)
        before = started
        go_on.set()
        await last
        return before, started

    assert asyncio.run(leave()) == (AT_ONCE, AT_ONCE + 1)


def test_only_a_few_large_bodies_are_worked_on_at_once() -> None:
    """Each may take many times its size in memory, so the others wait."""
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(AT_ONCE, timeout=10)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        together.wait()

    async def many() -> None:
        offload = Offload()
        await asyncio.gather(*(offload.run(LARGE_BYTES, work) for _ in range(3 * AT_ONCE)))

    asyncio.run(many())
    assert most == AT_ONCE
