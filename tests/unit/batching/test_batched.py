"""Requests that come together are answered together, and nobody gets what is another's."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from time import monotonic
from typing import Any

import numpy as np
import pytest
from scene import on_loop

from gateway.batching.batched import Batched, batched
from gateway.batching.config import BatchingConfig
from gateway.errors import DeadlineExceeded, InferenceFailed, InvalidTensor, LoadFailed
from gateway.interfaces import BackendStatus
from gateway.trace import Trace, current
from gateway.types import (
    DEFAULT_SIGNATURE,
    Batchable,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Signature,
    TensorSpec,
)

BAD = 666.0


class Doubler:
    """y = 2 x, row by row; a bad row fails the whole run. Notes the rows of every run."""

    def __init__(self, batchable: Batchable = "likely", *, now: bool = False, drops: int = 0) -> None:
        spec = TensorSpec("x", "float32", (None, None))
        signature = Signature(DEFAULT_SIGNATURE, "predict", {"x": spec}, {"y": spec}, batchable)
        self.metadata = ModelMetadata("doubler", 1, "test", {DEFAULT_SIGNATURE: signature})
        self.status = BackendStatus("test")
        self.runs: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = False
        self.drops = drops
        if now:
            self.infer_now = self._answer

    def _answer(self, request: InferenceRequest) -> InferenceResponse:
        rows = request.inputs["x"]
        self.runs.append(len(rows))
        if (rows == BAD).any():
            raise InvalidTensor("a bad row")
        return InferenceResponse({"y": rows[: len(rows) - self.drops] * 2})

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        await self.gate.wait()
        await asyncio.sleep(0)
        return self._answer(request)

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        yield await self.infer(request)

    async def close(self) -> None:
        self.closed = True


def of(*rows: float, width: int = 1, **changes: Any) -> InferenceRequest:
    """A request with those rows."""
    values = np.repeat(np.array(rows, np.float32)[:, None], width, axis=1)
    return InferenceRequest({"x": values}, **changes)


def told(response: InferenceResponse) -> list[float]:
    return [float(value) for value in response.outputs["y"][:, 0]]


def answered_at_once(coroutine: Coroutine[Any, Any, InferenceResponse]) -> InferenceResponse:
    """What it gives, if it does so without a wait."""
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    answer: InferenceResponse = done.value.value
    return answer


async def wrapped(inner: Doubler, **table: Any) -> Any:
    """The wrapper, without a trial; the runs of the trial are forgotten."""
    backend = await batched(inner, BatchingConfig(**{"mode": "on", **table}))
    inner.runs.clear()
    return backend


@pytest.mark.parametrize("now", [True, False])
@on_loop
async def test_what_comes_in_one_turn_is_run_once(now: bool) -> None:
    """All requests of one turn of the loop share a run, and each gets its own rows."""
    inner = Doubler(now=now)
    backend = await wrapped(inner)
    answers = await asyncio.gather(*(backend.infer(of(number, number + 0.5)) for number in range(5)))
    assert [[2.0 * number, 2 * number + 1] for number in range(5)] == [told(answer) for answer in answers]
    assert inner.runs == [10]


@on_loop
async def test_alone_a_request_does_not_wait() -> None:
    """Nothing is gathered for somebody who comes alone."""
    inner = Doubler()
    backend = await wrapped(inner, max_delay_us=10_000_000)
    async with asyncio.timeout(1.0):
        assert told(await backend.infer(of(3))) == [6]


@on_loop
async def test_who_is_alone_in_the_gateway_is_answered_at_once() -> None:
    """A short run needs no turn of the loop where nobody else asks; it counts, and its errors are its own."""
    backend = await wrapped(Doubler(now=True))
    current.set(alone := Trace("alone"))
    alone.alone = True
    assert told(answered_at_once(backend.infer(of(3)))) == [6.0]
    assert (sum(backend.tally.requests.counts), backend.tally.retries) == (1, 0)
    with pytest.raises(InvalidTensor, match="a bad row"):
        answered_at_once(backend.infer(of(BAD)))


@pytest.mark.parametrize(
    ("now", "alone", "table"), [(True, False, {}), (False, True, {}), (True, True, {"pad_to": [4]})]
)
@on_loop
async def test_who_may_not_be_alone_takes_a_turn(now: bool, alone: bool, table: dict[str, Any]) -> None:
    """Whoever others may join, whose run is long, or is filled up, waits with everybody."""
    inner = Doubler(now=now)
    backend = await wrapped(inner, **table)
    current.set(trace := Trace("one"))
    trace.alone = alone
    answers = [asyncio.ensure_future(backend.infer(of(number))) for number in (1, 2)]
    assert [told(answer) for answer in await asyncio.gather(*answers)] == [[2.0], [4.0]]
    assert len(inner.runs) == 1


@on_loop
async def test_what_comes_during_a_run_shares_the_next() -> None:
    """While a run is under way requests gather; with a delay over, they are run beside it."""
    inner = Doubler()
    backend = await wrapped(inner)
    inner.gate.clear()
    first = asyncio.ensure_future(backend.infer(of(1)))
    await asyncio.sleep(0.01)
    others = [asyncio.ensure_future(backend.infer(of(number))) for number in (2, 3, 4)]
    await asyncio.sleep(0.01)
    inner.gate.set()
    assert [told(await one) for one in (first, *others)] == [[2], [4], [6], [8]]
    assert inner.runs == [1, 3]


@on_loop
async def test_requests_of_other_kinds_are_not_mixed() -> None:
    """Width and dtype tell kinds apart; what the model does not take is refused alone."""
    inner = Doubler()
    backend = await wrapped(inner)
    wide = [backend.infer(of(number, width=3)) for number in range(3)]
    narrow = [backend.infer(of(number)) for number in range(3)]
    odd = backend.infer(InferenceRequest({"x": np.zeros((1, 1))}))
    answers = await asyncio.gather(*wide, *narrow, odd)
    assert [answer.outputs["y"].shape for answer in answers] == [(1, 3)] * 3 + [(1, 1)] * 4
    assert sorted(inner.runs) == [1, 3, 3]


@on_loop
async def test_no_run_has_more_rows_than_allowed() -> None:
    """What does not fit the run waits for the next."""
    inner = Doubler()
    backend = await wrapped(inner, max_batch_size=4)
    await asyncio.gather(*(backend.infer(of(number, number)) for number in range(5)))
    assert inner.runs == [4, 4, 2]


@on_loop
async def test_a_large_request_passes_by() -> None:
    """One that would fill the run alone gains nothing from others."""
    inner = Doubler()
    backend = await wrapped(inner, max_batch_size=4)
    await asyncio.gather(backend.infer(of(*range(9))), backend.infer(of(1)), backend.infer(of(2)))
    assert sorted(inner.runs) == [2, 9]


@pytest.mark.parametrize("now", [True, False])
@on_loop
async def test_a_bad_row_fails_its_own_request_only(now: bool) -> None:
    """A failed run is repeated in halves until the bad request is alone."""
    inner = Doubler(now=now)
    backend = await wrapped(inner)
    values = [BAD if number == 13 else float(number) for number in range(32)]
    answers = await asyncio.gather(*(backend.infer(of(value)) for value in values), return_exceptions=True)
    for number, answer in enumerate(answers):
        if number == 13:
            assert isinstance(answer, InvalidTensor)
        else:
            assert isinstance(answer, InferenceResponse)
            assert told(answer) == [2.0 * number]
    assert len(inner.runs) <= 2 * 5 + 1


@on_loop
async def test_a_wrong_number_of_rows_fails_everybody() -> None:
    """A model that loses rows answers nobody rather than somebody else."""
    backend = await wrapped(Doubler(drops=1))
    answers = await asyncio.gather(*(backend.infer(of(number)) for number in range(3)), return_exceptions=True)
    assert all(isinstance(answer, InferenceFailed) for answer in answers)
    assert "mode = 'off'" in str(answers[0])


@on_loop
async def test_nobody_is_run_for_who_has_left() -> None:
    """A request that is cancelled, or too late, before its run takes no place in it."""
    inner = Doubler()
    backend = await wrapped(inner)
    inner.gate.clear()
    first = asyncio.ensure_future(backend.infer(of(1)))
    await asyncio.sleep(0.01)
    gone = asyncio.ensure_future(backend.infer(of(2)))
    late = asyncio.ensure_future(backend.infer(of(3, deadline=monotonic() - 1)))
    stays = asyncio.ensure_future(backend.infer(of(4)))
    await asyncio.sleep(0.01)
    gone.cancel()
    inner.gate.set()
    assert told(await stays) == [8]
    assert told(await first) == [2]
    with pytest.raises(DeadlineExceeded):
        await late
    assert inner.runs == [1, 1]


@on_loop
async def test_rows_are_filled_up_and_dropped_again() -> None:
    """With `pad_to` the model sees only those sizes, and callers only their rows."""
    inner = Doubler()
    backend = await wrapped(inner, pad_to=(8, 4))
    answers = await asyncio.gather(*(backend.infer(of(number)) for number in range(3)))
    assert [told(answer) for answer in answers] == [[0], [2], [4]]
    assert told(await backend.infer(of(*range(6)))) == [0, 2, 4, 6, 8, 10]
    assert inner.runs == [4, 8]


@on_loop
async def test_parameters_keep_a_request_alone() -> None:
    """What a parameter means is the model's secret, so such a request is run alone."""
    inner = Doubler()
    backend = await wrapped(inner)
    await asyncio.gather(*(backend.infer(of(1, parameters={"a": 1})) for _ in range(3)))
    assert inner.runs == [1, 1, 1]


@on_loop
async def test_small_answers_do_not_keep_large_ones() -> None:
    """A few rows of a large joint answer are copied out of it."""
    backend = await wrapped(Doubler())
    answers = await asyncio.gather(*(backend.infer(of(number, width=30_000)) for number in range(4)))
    assert all(answer.outputs["y"].base is None for answer in answers)


# What may be batched...


@pytest.mark.parametrize(
    ("batchable", "mode", "is_batched"),
    [("likely", "auto", True), ("unknown", "auto", False), ("never", "auto", False), ("likely", "off", False),
     ("unknown", "on", True)],
)  # fmt: skip
@on_loop
async def test_which_models_are_batched(batchable: Batchable, mode: Any, is_batched: bool) -> None:
    """By itself only where the graph and a trial both say so; else only where the configuration does."""
    backend = await batched(Slow(batchable), BatchingConfig(mode=mode))
    assert isinstance(backend, Batched) == is_batched


@on_loop
async def test_chance_is_never_batched() -> None:
    """A model that draws random numbers is refused where batching is demanded."""
    with pytest.raises(LoadFailed, match="depends on chance"):
        await batched(Doubler("never"), BatchingConfig(mode="on"))


class Slow(Doubler):
    """Takes as long for many rows as for one."""

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        await asyncio.sleep(0.002)
        return await super().infer(request)


class Mixing(Slow):
    """Each row is told of all others."""

    def _answer(self, request: InferenceRequest) -> InferenceResponse:
        rows = request.inputs["x"]
        return InferenceResponse({"y": rows + rows.mean()})


class Moody(Slow):
    """Never answers twice alike."""

    def _answer(self, request: InferenceRequest) -> InferenceResponse:
        self.runs.append(1)
        return InferenceResponse({"y": request.inputs["x"] + len(self.runs)})


class Linear(Doubler):
    """Takes as long for each row."""

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        await asyncio.sleep(0.002 * len(request.inputs["x"]))
        return await super().infer(request)


@pytest.mark.parametrize("kind", [Mixing, Moody, Linear])
@on_loop
async def test_the_trial_finds_models_that_must_not_or_need_not_be_batched(kind: type[Doubler]) -> None:
    """Rows that mind each other, answers that change, and runs that would not be faster."""
    backend = await batched(kind(), BatchingConfig())
    assert not isinstance(backend, Batched)


@on_loop
async def test_streams_and_closing_pass_through() -> None:
    """A streamed answer is the model's own; closing reaches it."""
    inner = Doubler()
    backend = await wrapped(inner)
    assert [told(part) async for part in backend.stream(of(2))] == [[4]]
    await backend.close()
    assert inner.closed


# Many...


@on_loop
async def test_everybody_gets_their_own_answer() -> None:
    """A hundred thousand mixed requests: sizes, widths, bad rows, cancellations, late ones; every answer is checked."""
    random = np.random.default_rng(5)
    inners = [Doubler(now=True), Doubler()]
    backends = [await wrapped(inner, max_batch_size=48) for inner in inners]
    checked = 0

    async def ask(number: int) -> None:
        nonlocal checked
        kind = number % 50
        rows = [float(number % 100_000 + step) for step in range(1 + number % 3)]
        if kind == 7:
            rows[-1] = BAD
        request = of(*rows, width=1 + number % 4, deadline=monotonic() - 1 if kind == 11 else None)
        task = asyncio.ensure_future(backends[number % 2].infer(request))
        if kind == 23:
            await asyncio.sleep(0)
            task.cancel()
        try:
            answer = await task
        except asyncio.CancelledError:
            assert kind == 23
        except DeadlineExceeded:
            assert kind == 11
        except InvalidTensor:
            assert kind == 7 or BAD in rows
        else:
            assert kind != 7
            assert np.array_equal(answer.outputs["y"], request.inputs["x"] * 2)
        checked += 1

    for start in range(0, 100_000, 500):
        order = random.permutation(np.arange(start, start + 500))
        await asyncio.gather(*(ask(int(number)) for number in order))
    assert checked == 100_000
    assert sum(map(len, (inner.runs for inner in inners))) < 30_000
