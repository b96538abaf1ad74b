"""Continuous batching on a thread of its own: choices join and leave the running batch at every step.

A step reads one chunk of a waiting prompt and draws one token for every choice that is past its prompt. So a long
prompt holds the others up by one chunk at most, and whoever leaves is gone with the next step.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from backends.generate.decoder import Decoder
from backends.generate.sequence import Choice, Delta
from gateway.errors import GatewayError, InferenceFailed, NotReady, Overloaded

log = logging.getLogger("tensorgate.generate")

PACE_SECONDS = 0.001
"""PERF: a stream's reader is woken this often at most, for a hand-over between threads costs 30 us, a third of a small
model's step; a model that takes longer for a step than this hands over every token."""
LEAST_SHARED = 8
"""Tokens of a common beginning that are worth a copy."""


class Job:
    """A request's choices, and what of them the event loop has not fetched yet."""

    def __init__(self, choices: Sequence[Choice], streamed: bool, begins: bool = False) -> None:
        """With `begins`, a stream tells of a choice's slot while its prompt is still read."""
        self.choices = choices
        self._begins = streamed and begins
        self.cancelled = False
        self.error: Exception | None = None
        self._streamed = streamed
        self._unfinished = len(choices)
        self._deltas: deque[Delta] = deque()
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._told = False
        self._told_at = 0.0

    # On the scheduler's thread...

    def begin(self, choice: int) -> None:
        """The choice has a slot. `flush` hands it over, or the first of its text does."""
        if self._begins:
            self._deltas.append(Delta(choice, begins=True))

    def put(self, delta: Delta) -> None:
        """Add what a step gave."""
        self._deltas.append(delta)
        if delta.finish_reason is not None:
            self._unfinished -= 1
        if not self._unfinished or (
            self._streamed and not delta.empty and time.monotonic() - self._told_at >= PACE_SECONDS
        ):
            self._tell()

    def flush(self) -> None:
        """Hand over what a stream's pace holds back, for the next step takes long."""
        if self._streamed and self._deltas:
            self._tell()

    def fail(self, error: Exception) -> None:
        """End it; its reader gets the error."""
        self.error = error
        self.cancelled = True
        self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._told_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._woken.set)
            except RuntimeError:  # the loop is closed: nobody reads
                self.cancelled = True

    # On the event loop...

    async def deltas(self) -> list[Delta]:
        """What came since the last call, at most one delta a choice; empty when all is told.

        A delta that has nothing to tell yet waits for the next; one that is not streamed for the choice's end.
        """
        while True:
            if self._unfinished:
                await self._woken.wait()
            self._told = False
            self._woken.clear()
            ended = not self._unfinished  # asked before the last delta is fetched, not after
            found: dict[int, Delta] = {}
            while self._deltas:
                delta = self._deltas.popleft()
                if delta.choice in found:
                    found[delta.choice].add(delta)
                else:
                    found[delta.choice] = delta
            if self.error is not None:
                raise self.error
            ready = [delta for delta in found.values() if ended or (self._streamed and not delta.empty)]
            self._deltas.extendleft(delta for delta in found.values() if delta not in ready)
            if ready or ended:
                return ready


class Seat:
    """One slot's contents: the tokens whose keys and values it holds, and the choice that they are for."""

    def __init__(self) -> None:
        self.choice: Choice | None = None
        self.job: Job | None = None
        self.tokens: list[int] = []
        self.length = 0
        self.order = 0
        self.fresh = False

    @property
    def reading(self) -> bool:
        """It is still at its prompt."""
        return self.choice is not None and self.length < self.choice.prompt_tokens

    @property
    def drawing(self) -> bool:
        """It takes part in the next decoding step."""
        return self.choice is not None and self.length >= self.choice.prompt_tokens

    def take(self, choice: Choice, job: Job, order: int) -> None:
        """Seat a choice; what the slot holds of its prompt already, it need not read."""
        self.length = self.shared(choice)
        self.choice, self.job, self.tokens, self.order, self.fresh = choice, job, choice.tokens, order, True
        choice.cached_tokens = self.length

    def leave(self) -> None:
        """The choice has ended; its tokens stay for whoever begins alike."""
        self.tokens = self.tokens[: self.length]
        self.choice = self.job = None

    def shared(self, choice: Choice) -> int:
        """How much of the choice's prompt the slot holds; its last token is always read, for what follows it."""
        if choice.wants_prompt_logits:
            return 0
        return _common(self.tokens, choice.tokens, min(self.length, choice.prompt_tokens - 1))


def _common(left: list[int], right: list[int], most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Scheduler:
    """The batch of one model."""

    def __init__(self, decoder: Decoder, queue: int, name: str, started: bool = True) -> None:
        self._decoder = decoder
        self._seats = [Seat() for _ in range(decoder.slots)]
        self._waiting: deque[tuple[Choice, Job]] = deque()
        self._most = decoder.slots + queue
        self._living = 0
        """Choices that wait or run."""
        self._orders = 0
        self._taken = 0
        """The seats that are taken come first, this many."""
        self._stirred = False
        """A seat was taken or left since they were closed up."""
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"generate-{name}", daemon=True)
        if started:
            self._thread.start()

    @property
    def living(self) -> int:
        """Choices that wait or run."""
        return self._living

    @property
    def most(self) -> int:
        """How many may."""
        return self._most

    def submit(self, job: Job) -> None:
        """Let the choices take their turn. Raises Overloaded or NotReady."""
        with self._changed:
            if self._closing:
                raise NotReady("the model is being unloaded")
            if self._living + len(job.choices) > self._most:
                raise Overloaded(f"{self._living} answers are being made or wait already", retry_after=1)
            self._living += len(job.choices)
            self._waiting.extend((choice, job) for choice in job.choices)
            self._changed.notify()

    def close(self) -> None:
        """Stop within a step; blocks until then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    # On its thread...

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._living and not self._closing:
                    self._changed.wait()
                if self._closing:
                    break
            try:
                self.step()
            except Exception as error:
                log.exception("the batch failed; all its answers end")
                self._abandon(InferenceFailed("the model failed while it was writing"), error)
        self._abandon(NotReady("the model is being unloaded"), None)

    def _abandon(self, error: GatewayError, cause: Exception | None) -> None:
        """End everything with this error."""
        error.__cause__ = cause
        with self._changed:
            waiting, self._waiting = self._waiting, deque()
            self._living -= len(waiting)
        for _, job in waiting:
            job.fail(error)
        for seat in self._seats:
            if seat.choice is not None:
                self._fail(seat, error)

    def step(self) -> None:
        """Let in and out, read a chunk, draw a token each."""
        self._drop_cancelled()
        self._admit()
        self._close_up()
        self._read_prompts()
        self._draw()

    def _drop_cancelled(self) -> None:
        for seat in self._seats[: self._taken]:
            if seat.job is not None and seat.job.cancelled:
                self._free(seat)
        if self._waiting:
            with self._changed:
                kept = [(choice, job) for choice, job in self._waiting if not job.cancelled]
                if len(kept) < len(self._waiting):
                    self._living -= len(self._waiting) - len(kept)
                    self._waiting = deque(kept)

    def _admit(self) -> None:
        while self._waiting:
            choice, job = self._waiting[0]
            idle = [seat for seat in self._seats if seat.choice is None]
            if not idle:
                return
            with self._changed:
                self._waiting.popleft()
            self._orders += 1
            self._stirred = True
            max(idle, key=lambda seat: seat.shared(choice)).take(choice, job, self._orders)
            job.begin(choice.index)

    def _close_up(self) -> None:
        """PERF: a step computes all slots up to the last that is taken, so the last moves into a hole."""
        while self._stirred:
            hole = next((place for place, seat in enumerate(self._seats) if seat.choice is None), len(self._seats))
            last = max((place for place, seat in enumerate(self._seats) if seat.choice is not None), default=-1)
            if hole > last:
                self._taken, self._stirred = hole, False
                return
            self._decoder.copy(last, hole, self._seats[last].length)
            self._seats[hole], self._seats[last] = self._seats[last], Seat()

    def _read_prompts(self) -> None:
        """As many prompts as fit a chunk, first come, first served."""
        left = self._decoder.chunk
        reading = sorted(self._reading(), key=lambda one: one[1].order)
        if reading:
            for seat in self._seats[: self._taken]:
                if seat.job is not None:
                    seat.job.flush()
        for place, seat in reading:
            choice = seat.choice
            assert choice is not None
            if seat.fresh:
                self._borrow(place, seat, choice)
            part = choice.tokens[seat.length : min(choice.prompt_tokens, seat.length + left)]
            try:
                logits = self._decoder.prefill(place, seat.length, part)
                if choice.wants_prompt_logits:
                    choice.score_prompt(seat.length, logits)
                seat.length += len(part)
                if not seat.reading:
                    self._tell(seat, choice.accept(logits[-1]) if choice.most_tokens > 0 else choice.skip())
            except Exception as error:
                self._fail(seat, error)
            left -= len(part)
            if left <= 0:
                return

    def _reading(self) -> Iterator[tuple[int, Seat]]:
        return ((place, seat) for place, seat in enumerate(self._seats[: self._taken]) if seat.reading)

    def _borrow(self, place: int, seat: Seat, choice: Choice) -> None:
        """Copy the beginning of the prompt from whoever has it."""
        seat.fresh = False
        source = max(range(len(self._seats)), key=lambda other: self._seats[other].shared(choice))
        length = self._seats[source].shared(choice)
        if length >= seat.length + LEAST_SHARED:
            self._decoder.copy(source, place, length)
            seat.length = choice.cached_tokens = length

    def _draw(self) -> None:
        drawing = [place for place, seat in enumerate(self._seats[: self._taken]) if seat.drawing]
        if not drawing:
            return
        seats = self._seats[: drawing[-1] + 1]
        most = self._decoder.length - 1
        lengths = [min(seat.length, most) for seat in seats]
        tokens = [seat.tokens[-1] if seat.drawing else 0 for seat in seats]
        try:
            logits = self._decoder.decode(lengths, tokens, drawing)
        except Exception as error:
            for place in drawing:
                self._fail(self._seats[place], error)
            return
        for place in drawing:
            seat = self._seats[place]
            choice = seat.choice
            assert choice is not None
            seat.length += 1
            try:
                delta = choice.accept(logits[place])
            except Exception as error:
                self._fail(seat, error)
            else:
                self._tell(seat, delta)

    def _tell(self, seat: Seat, delta: Delta) -> None:
        assert seat.job is not None
        job = seat.job
        if delta.finish_reason is not None:
            self._free(seat)
        job.put(delta)

    def _fail(self, seat: Seat, error: Exception) -> None:
        if not isinstance(error, GatewayError):
            log.error("a step failed", exc_info=error)
            error = InferenceFailed("the model failed while it was writing")
        if seat.job is not None:
            seat.job.fail(error)
        seat.length = 0
        self._free(seat)

    def _free(self, seat: Seat) -> None:
        seat.leave()
        self._stirred = True
        with self._changed:
            self._living -= 1
