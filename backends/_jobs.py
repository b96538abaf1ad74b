"""Calls to a pool, from the moment that they are made until their callers have their answers or have left."""

import asyncio
from collections import deque
from collections.abc import Sequence
from time import perf_counter

from backends._frames import PARTS_AT_ONCE, Buffer
from backends._worker import Worker
from gateway.types import InferenceResponse, Lap, laps


class Job:
    """A call that is answered once."""

    streamed = False

    def __init__(self, number: int, frame: list[Buffer], may_retry: bool) -> None:
        self.number = number
        self.frame = frame
        """Kept until the end: another worker may have to be asked."""
        self.may_retry = may_retry
        self.worker: Worker | None = None
        self.over = False
        """The caller has the answer, or has left."""
        self._made = perf_counter()
        self.sent = 0.0
        self._ran: tuple[float, float, int] | None = None
        """When the worker began and ended, and its process."""
        self.laps: Sequence[Lap] = ()
        """What another process tells that has the worker."""
        self.timer: asyncio.TimerHandle | None = None
        self.answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()

    @property
    def begun(self) -> bool:
        """Whether a part of the answer is on its way, so that the call cannot be made again."""
        return False

    def note_run(self, worker: Worker, in_turn: bool) -> None:
        """The worker has answered. One that takes its calls in turn had to answer the one before first."""
        now = perf_counter()
        self._ran = (max(self.sent, worker.answered_at) if in_turn else self.sent, now, worker.pid)
        worker.answered_at = now

    def tell_laps(self) -> None:
        """Say where the time went, if the request is traced."""
        kept = laps.get()
        if kept is None:
            return
        kept.extend(self.laps)
        if self._ran is not None:
            start, end, pid = self._ran
            kept.append(Lap("worker.wait", self._made, start))
            kept.append(Lap("worker.run", start, end, {"process.pid": pid}))

    def part(self, response: InferenceResponse) -> None:
        """A part has come, unasked for."""

    def end(self, response: InferenceResponse) -> None:
        """The answer is here."""
        self.over = True
        if not self.answer.done():
            self.answer.set_result(response)

    def fail(self, error: Exception) -> None:
        """There is no answer."""
        self.over = True
        if not self.answer.done():
            self.answer.set_exception(error)


class StreamedJob(Job):
    """A call that is answered in parts."""

    streamed = True

    def __init__(self, number: int, frame: list[Buffer], may_retry: bool) -> None:
        super().__init__(number, frame, may_retry)
        self._parts: deque[InferenceResponse] = deque()
        self._begun = False
        self._taken = 0
        self._failure: Exception | None = None
        self._news = asyncio.Event()

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def unread(self) -> bool:
        """Whether the caller has something to go on with."""
        return bool(self._parts)

    def part(self, response: InferenceResponse) -> None:
        self._begun = True
        self._parts.append(response)
        self._news.set()

    def end(self, response: InferenceResponse) -> None:
        if response.outputs or response.parameters:
            self._parts.append(response)
        self.over = True
        self._news.set()

    def fail(self, error: Exception) -> None:
        self.over = True
        self._failure = error
        self._news.set()

    async def next(self) -> InferenceResponse | None:
        """The next part, None at the end. Raises what `fail` was given, after the parts before it."""
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self.over:
                return None
            self._news.clear()
            await self._news.wait()
        self._taken += 1
        return self._parts.popleft()

    def credit(self) -> int:
        """How many parts more the worker may send; told of only when it is worth a frame."""
        if self._taken < PARTS_AT_ONCE // 2:
            return 0
        taken, self._taken = self._taken, 0
        return taken
