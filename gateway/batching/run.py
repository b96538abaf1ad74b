"""One run of the model for several requests, and what becomes of them if it fails."""

import asyncio
from collections.abc import Coroutine, Sequence
from time import perf_counter
from typing import Any

from gateway.batching.rows import joined, padded, parted
from gateway.batching.tally import Tally
from gateway.errors import CapacityError, OutOfMemory
from gateway.interfaces import Backend, Prompt
from gateway.steps import Turn
from gateway.trace import current
from gateway.types import InferenceRequest, InferenceResponse

THREAD_BYTES = 1 << 20
"""Rows of so many bytes are joined on a thread."""


class Entry:
    """A request that waits for its answer."""

    __slots__ = ("answer", "request", "rows", "since", "trace")

    def __init__(self, request: InferenceRequest, rows: int, answer: "Turn[InferenceResponse]") -> None:
        self.request = request
        self.rows = rows
        self.answer = answer
        self.since = perf_counter()
        self.trace = current.get()

    def begin(self, now: float) -> None:
        """Its run begins."""
        if self.trace is not None:
            self.trace.waited += now - self.since

    def fail(self, error: Exception) -> None:
        """Tell the caller, if it is still there."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Batch:
    """The requests of one run, alike but for their rows."""

    __slots__ = ("entries", "row_bytes", "rows")

    def __init__(self, entries: Sequence[Entry], row_bytes: int) -> None:
        self.entries = entries
        self.row_bytes = row_bytes
        self.rows = sum([entry.rows for entry in entries])

    @property
    def large(self) -> bool:
        """Whether joining the rows would keep the event loop."""
        return len(self.entries) > 1 and self.rows * self.row_bytes >= THREAD_BYTES

    def joined(self, pad_to: Sequence[int]) -> InferenceRequest:
        """All of them as one request."""
        return joined([entry.request for entry in self.entries], self.rows, pad_to)

    def halves(self) -> "tuple[Batch, Batch]":
        """The first requests, and the others."""
        middle = len(self.entries) // 2
        return Batch(self.entries[:middle], self.row_bytes), Batch(self.entries[middle:], self.row_bytes)


class Runner:
    """Runs batches and gives everybody what is theirs."""

    def __init__(self, backend: Backend, pad_to: Sequence[int], tally: Tally) -> None:
        self._backend = backend
        self._prompt = backend if isinstance(backend, Prompt) else None
        self._pad_to = pad_to
        self._tally = tally

    def start(self, batch: Batch) -> Coroutine[Any, Any, None] | None:
        """Answer the requests here and now if that is short; else returns what does so when awaited."""
        if self._prompt is None or batch.large:
            return self._later(batch)
        request = batch.joined(self._pad_to)
        try:
            response = self._prompt.infer_now(request)
        except Exception as error:
            rests = [self.start(half) for half in self._again(batch, error)]
            left = [rest for rest in rests if rest is not None]
            return _all_of(left) if left else None
        if response is None:
            return self._run(batch, request)
        self._answer(batch, response)
        return None

    def run_now(self, request: InferenceRequest) -> InferenceResponse | None:
        """The answer to a request that is run alone, if that is short."""
        return None if self._prompt is None or self._pad_to else self._prompt.infer_now(request)

    async def _later(self, batch: Batch) -> None:
        if batch.large:
            request = await asyncio.to_thread(batch.joined, self._pad_to)
        else:
            request = batch.joined(self._pad_to)
        await self._run(batch, request)

    async def _run(self, batch: Batch, request: InferenceRequest) -> None:
        try:
            response = await self._backend.infer(request)
        except Exception as error:
            halves = self._again(batch, error)
        except BaseException:
            for entry in batch.entries:
                entry.answer.cancel()
            raise
        else:
            self._answer(batch, response)
            return
        for half in halves:
            await self._later(half)

    def _again(self, batch: Batch, error: Exception) -> Sequence[Batch]:
        """What to try once more: one bad row must not fail other callers' requests, so halves until it is alone."""
        if len(batch.entries) > 1 and (not isinstance(error, CapacityError) or isinstance(error, OutOfMemory)):
            self._tally.retries += 1
            return batch.halves()
        for entry in batch.entries:
            entry.fail(error)
        return ()

    def _answer(self, batch: Batch, response: InferenceResponse) -> None:
        entries, given = batch.entries, padded(batch.rows, self._pad_to)
        try:
            if len(entries) == 1 and given == batch.rows:
                parts = [response]
            else:
                parts = parted(response, [entry.rows for entry in entries], given)
        except Exception as error:
            for entry in entries:
                entry.fail(error)
            return
        for entry, part in zip(entries, parts, strict=True):
            if not entry.answer.done():
                entry.answer.set_result(part)


async def _all_of(rests: Sequence[Coroutine[Any, Any, None]]) -> None:
    for rest in rests:
        await rest
