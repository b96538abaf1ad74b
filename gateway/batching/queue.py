"""Where requests wait for the run that they share: for the event loop's next turn, or for a run under way.

PERF: whatever came in one turn of the loop is run together. That takes no timer, no thread, and no wait when idle.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from time import monotonic, perf_counter
from typing import Any

from gateway.batching.run import Batch, Entry, Runner
from gateway.batching.tally import Tally
from gateway.deadlines import too_late
from gateway.steps import Turn
from gateway.trace import current
from gateway.types import InferenceRequest, InferenceResponse


class Group:
    """Requests whose rows fit under one another."""

    __slots__ = ("largest", "most_rows", "row_bytes", "waiting")

    def __init__(self, most_rows: int, largest: int, row_bytes: int) -> None:
        self.most_rows = most_rows
        """Run together."""
        self.largest = largest
        """Rows of one request, over which it gains nothing from others."""
        self.row_bytes = row_bytes
        self.waiting: deque[Entry] = deque()

    def take(self) -> list[Entry]:
        """The first that fit one run; whoever is not waited for any more is dropped."""
        taken: list[Entry] = []
        rows, now = 0, 0.0
        while self.waiting:
            entry = self.waiting[0]
            if taken and rows + entry.rows > self.most_rows:
                break
            self.waiting.popleft()
            if entry.answer.done():
                continue
            deadline = entry.request.deadline
            if deadline is not None and deadline <= (now := now or monotonic()):
                entry.fail(too_late())
                continue
            taken.append(entry)
            rows += entry.rows
        return taken


class Queue:
    """The requests of one model, all on one event loop."""

    def __init__(self, runner: Runner, tally: Tally, runs_at_once: int, delay_seconds: float) -> None:
        self._runner = runner
        self._tally = tally
        self._runs_at_once = runs_at_once
        self._delay_seconds = delay_seconds
        self._groups: deque[Group] = deque()
        """Those in which somebody waits, the one whose turn it is first."""
        self._runs: set[asyncio.Task[None]] = set()
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None

    def at_once(self, request: InferenceRequest) -> InferenceResponse | None:
        """The answer to a request that nobody else's will share a run with, if it is had here and now."""
        # PERF: the queue takes a turn of the event loop, 12 us of 100 for a client with one request after the other.
        trace = current.get()
        if trace is None or not trace.alone or self._groups or self._runs:
            return None
        response = self._runner.run_now(request)
        if response is not None:
            self._tally.requests.add(1)
            self._tally.waits.add(0.0)
        return response

    def put(self, group: Group, request: InferenceRequest, rows: int) -> "Turn[InferenceResponse]":
        """The answer to come. Cancelling it takes the request out of the queue."""
        loop = asyncio.get_running_loop()
        entry = Entry(request, rows, Turn(loop=loop))
        if not group.waiting:
            self._groups.append(group)
        group.waiting.append(entry)
        if len(self._runs) < self._runs_at_once:
            if not self._flushing:
                self._flushing = True
                loop.call_soon(self._flush)
        elif self._delay_seconds and self._timer is None:
            self._timer = loop.call_later(self._delay_seconds, self._overdue)
        return entry.answer

    def _flush(self) -> None:
        """Run what waits, as far as there is a run free."""
        self._flushing = False
        while self._groups and len(self._runs) < self._runs_at_once:
            self._start_next()

    def _overdue(self) -> None:
        """Somebody has waited long enough for the runs under way: whatever waits is run beside them."""
        self._timer = None
        while self._groups:
            self._start_next()

    def _start_next(self) -> None:
        group = self._groups.popleft()
        entries = group.take()
        if group.waiting:
            self._groups.append(group)
        if entries:
            now = perf_counter()
            self._tally.requests.add(len(entries))
            self._tally.waits.add(now - entries[0].since)
            for entry in entries:
                entry.begin(now)
            rest = self._runner.start(Batch(entries, group.row_bytes))
            if rest is not None:
                self._under_way(rest)

    def _under_way(self, rest: Coroutine[Any, Any, None]) -> None:
        run = asyncio.get_running_loop().create_task(rest)
        self._runs.add(run)
        run.add_done_callback(self._over)

    def _over(self, run: "asyncio.Task[None]") -> None:
        self._runs.discard(run)
        self._flush()
        if self._timer is not None and not self._groups:
            self._timer.cancel()
            self._timer = None
