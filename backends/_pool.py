"""Worker processes that answer calls: who gets which, what becomes of those of a worker that ends, and its successor.

A call waits here, not in a worker, so that the end of one costs no more than what it was working on.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from time import monotonic, perf_counter
from typing import Any

from backends._calls import RETRY_AFTER_SECONDS, backoff, failure_of, loss_of, refusal_of, request_frame, response_of
from backends._frames import CANCEL, CREDIT, END, ERROR, PART, READY, STATUS, Frame, Tensors, pack
from backends._jobs import Job, StreamedJob
from backends._pool_settings import Settings
from backends._starting import begun
from backends._worker import Launch, Worker, closed
from gateway.errors import DeadlineExceeded, LoadFailed, NotReady, OutOfMemory, Overloaded
from gateway.types import InferenceResponse

STREAMS_AT_ONCE = 64
"""On one worker."""
KILL_SECONDS = 1.0
"""After its deadline, a call that still runs takes its worker with it."""
STEADY_SECONDS = 1.0
"""A worker that has lived so long was in order."""
WATCH_SECONDS = 0.1

log = logging.getLogger("tensorgate.workers")


class Pool:
    """The workers of one model."""

    def __init__(self, launch: Launch, settings: Settings) -> None:
        self._launch = launch
        self._settings = settings
        self._numbers = itertools.count(1)
        self._waiting: deque[Job] = deque()
        self._ready: dict[Worker, dict[int, Job]] = {}
        """The calls that each worker has, in the order in which it takes them."""
        self._starting: dict[Worker, asyncio.Future[dict[str, Any]]] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._wanted = settings.replicas
        self._leaving: set[Worker] = set()
        """Workers that get no more calls, and end once they have answered those that they have."""
        self._closing = False
        self._trouble = ""
        """Why no worker could be started, since the last one was ready."""
        # PERF: with one worker, the next calls are there when it has answered; several had better share what waits.
        self._depth = settings.at_once or (4 if settings.replicas == 1 else 1)
        self.told: dict[str, Any] = {}
        """What the worker said of itself that spoke of that last."""

    @property
    def name(self) -> str:
        return self._launch.name

    @property
    def size(self) -> tuple[int, int]:
        """How many workers are ready, and how many there should be."""
        return len(self._ready) - len(self._leaving), self._wanted

    @property
    def cpu_seconds(self) -> float:
        """What the ready workers have computed so far."""
        return sum(worker.cpu_seconds() for worker in self._ready)

    @property
    def resident_bytes(self) -> int:
        """What the ready workers hold of the machine's memory."""
        return sum(worker.resident_bytes() for worker in self._ready)

    # For the model...

    async def start(self) -> dict[str, Any]:
        """Start every worker; returns what the first says of itself. Raises LoadFailed or OutOfMemory."""
        opened = await asyncio.gather(*(self._open() for _ in range(self._settings.replicas)), return_exceptions=True)
        failures = [one for one in opened if isinstance(one, BaseException)]
        workers = [one for one in opened if not isinstance(one, BaseException)]
        if failures:
            await asyncio.gather(*(worker.close() for worker, _ in workers))
            raise failures[0]
        for worker, _ in workers:
            self._ready[worker] = {}
            self._begin(self._keep(worker), "worker")
        if self._settings.memory_bytes:
            self._begin(self._watch_memory(), "memory")
        return workers[0][1]

    def scale(self, nodes: int) -> None:
        """Have so many workers from now on: new ones are started, or the idlest end once they have answered."""
        staying = len(self._keepers) - bool(self._settings.memory_bytes) - len(self._leaving)
        self._wanted = nodes
        for _ in range(nodes - staying):
            self._begin(self._add(), "worker")
        surplus = sorted(self._ready.keys() - self._leaving, key=lambda worker: len(self._ready[worker]))
        for worker in surplus[: max(0, staying - nodes)]:
            self._leaving.add(worker)
            self._let_go(worker)

    def _begin(self, work: Coroutine[Any, Any, None], kind: str) -> None:
        task = asyncio.create_task(work, name=f"{kind} of {self.name}")
        self._keepers.add(task)
        task.add_done_callback(self._keepers.discard)

    async def infer(
        self, header: dict[str, Any], tensors: Tensors, deadline: float | None = None, may_retry: bool = True
    ) -> InferenceResponse:
        """One answer. Leaving takes the call back."""
        number = next(self._numbers)
        job = Job(number, request_frame(number, False, header, tensors), may_retry and self._settings.retry)
        self._submit(job, deadline)
        try:
            return await job.answer
        finally:
            self._leave(job)

    async def stream(
        self, header: dict[str, Any], tensors: Tensors, deadline: float | None = None
    ) -> AsyncIterator[InferenceResponse]:
        """The answer in parts. Closing the iterator ends the call."""
        number = next(self._numbers)
        job = StreamedJob(number, request_frame(number, True, header, tensors), self._settings.retry)
        self._submit(job, deadline)
        try:
            while (part := await job.next()) is not None:
                self._set_timer(job, deadline)
                parts = job.credit()
                if parts and not job.over and job.worker is not None:
                    job.worker.send(pack(CREDIT, {"id": number, "parts": parts}))
                yield part
        finally:
            self._leave(job)

    async def close(self) -> None:
        """End the workers; calls that are still waiting fail."""
        self._closing = True
        keepers = list(self._keepers)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        gone = NotReady("the model is being unloaded", RETRY_AFTER_SECONDS)
        for job in [*self._waiting, *(job for jobs in self._ready.values() for job in jobs.values())]:
            if not job.over:
                job.fail(gone)
        self._waiting.clear()
        workers = [*self._ready, *self._starting]
        self._ready.clear()
        await asyncio.gather(*(worker.close() for worker in workers))

    # Calls...

    def _submit(self, job: Job, deadline: float | None) -> None:
        if self._closing:
            raise NotReady("the model is being unloaded", RETRY_AFTER_SECONDS)
        if self._trouble and not self._ready:
            raise NotReady(self._trouble, RETRY_AFTER_SECONDS)
        if len(self._waiting) >= self._settings.most_waiting:
            raise Overloaded(f"{len(self._waiting)} requests are waiting for this model", RETRY_AFTER_SECONDS)
        self._set_timer(job, deadline)
        self._waiting.append(job)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give waiting calls to workers that have time for them."""
        while self._waiting and (worker := self._free()) is not None:
            job = self._waiting.popleft()
            job.worker, job.sent = worker, perf_counter()
            self._ready[worker][job.number] = job
            worker.send(job.frame)

    def _free(self) -> Worker | None:
        """The worker with the fewest calls, if it may have another."""
        best, least = None, self._depth
        for worker, jobs in self._ready.items():
            if worker in self._leaving:
                continue
            fresh = len(jobs)
            if fresh >= self._depth:
                fresh = sum(not job.begun for job in jobs.values())
            if fresh < least and len(jobs) < STREAMS_AT_ONCE:
                best, least = worker, fresh
        return best

    def _leave(self, job: Job) -> None:
        """The caller has the answer, or will not wait for it."""
        job.tell_laps()
        if not job.over:
            job.over = True
            self._take_back(job)
        elif job.worker is None and job.timer is not None:
            job.timer.cancel()

    def _take_back(self, job: Job) -> None:
        if job.worker is not None:
            job.worker.send(pack(CANCEL, {"id": job.number}))
            if job.streamed:
                self._expect_end(job)
            return
        if job.timer is not None:
            job.timer.cancel()
        with contextlib.suppress(ValueError):
            self._waiting.remove(job)

    # Deadlines...

    def _set_timer(self, job: Job, deadline: float | None) -> None:
        """For the answer or the next part: what the model allows, or what the caller does, whichever is sooner."""
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None
        seconds = self._settings.answer_seconds
        if deadline is not None:
            left = max(0.0, deadline - monotonic())
            seconds = left if seconds is None else min(seconds, left)
        if seconds is not None and not job.over:
            job.timer = asyncio.get_running_loop().call_later(seconds, self._expire, job, deadline)

    def _expire(self, job: Job, deadline: float | None) -> None:
        if isinstance(job, StreamedJob) and job.unread and (deadline is None or monotonic() < deadline):
            self._set_timer(job, deadline)  # it is the caller who takes his time
            return
        if not job.over:
            job.fail(DeadlineExceeded("the model did not answer in time"))
            self._take_back(job)
        self._expect_end(job)

    def _expect_end(self, job: Job) -> None:
        """A class cannot be interrupted, only ended: if it still works on the call then."""
        if job.worker is not None:
            if job.timer is not None:
                job.timer.cancel()
            job.timer = asyncio.get_running_loop().call_later(KILL_SECONDS, self._end_of_patience, job)

    def _end_of_patience(self, job: Job) -> None:
        worker = job.worker
        jobs = self._ready.get(worker) if worker is not None else None
        if worker is None or jobs is None or job.number not in jobs:
            return
        if job.begun or job is next(iter(jobs.values())):
            log.warning("%s: a worker is still busy with a call that is over, and is replaced", self.name)
            worker.kill("did not come to an end after a deadline")
        else:
            self._expect_end(job)  # it stands behind the call that keeps the worker busy

    # Frames...

    def _on_frame(self, worker: Worker, frame: Frame) -> None:
        if worker in self._starting:
            self._on_start(self._starting[worker], frame)
            return
        if frame.kind == STATUS:
            self.told = frame.header
            return
        jobs = self._ready.get(worker, {})
        job = jobs.get(frame.header["id"])
        if job is None:
            return
        if frame.kind == PART:
            if not job.over:
                job.part(response_of(frame))
            return
        # NOTE: what is no answer must be found out while the call is still the worker's, or nobody would answer it.
        answer = response_of(frame) if frame.kind == END else failure_of(frame.header)
        del jobs[job.number]
        job.note_run(worker, in_turn=not self._settings.at_once)
        job.worker = None
        if job.timer is not None:
            job.timer.cancel()
        if not job.over:
            if isinstance(answer, InferenceResponse):
                job.end(answer)
            else:
                job.fail(answer)
        if frame.kind == ERROR and frame.header["kind"] == "memory":
            worker.kill("used all the memory that it may have")
        if worker in self._leaving:
            self._let_go(worker)
        self._dispatch()

    def _on_start(self, started: asyncio.Future[dict[str, Any]], frame: Frame) -> None:
        if started.done():
            return
        if frame.kind == READY:
            self.told = frame.header
            started.set_result(frame.header)
        else:
            started.set_exception(refusal_of(frame.header))

    # Workers...

    async def _open(self) -> tuple[Worker, dict[str, Any]]:
        """A worker that is ready, and what it says of itself. Raises LoadFailed or OutOfMemory."""
        worker = Worker(self._launch, self._on_frame)
        started: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._starting[worker] = started
        try:
            return worker, await begun(worker, started, self._settings.start_seconds)
        finally:
            del self._starting[worker]

    async def _add(self) -> None:
        """One more worker, and always one in its place."""
        failures = 0
        while (worker := await self._successor()) is None:
            failures += 1
            await asyncio.sleep(backoff(failures))
        self._trouble = ""
        if self.size[0] >= self._wanted:  # there are to be fewer again
            await closed(worker)
            return
        self._ready[worker] = {}
        self._dispatch()
        await self._keep(worker)

    def _let_go(self, worker: Worker) -> None:
        """End a worker that is to leave, once it has nothing to answer."""
        if not self._ready.get(worker):
            worker.dismiss()

    async def _keep(self, worker: Worker) -> None:
        """See to it that there is always a worker in the place of this one, unless it is to leave."""
        failures = 0
        while True:
            since = monotonic()
            await worker.ended
            failures = 1 if monotonic() - since > STEADY_SECONDS else failures + 1
            jobs = self._ready.pop(worker)
            ending = await closed(worker)
            if worker in self._leaving:
                self._leaving.discard(worker)
                self._bereave(jobs, ending)
                log.info("%s: a worker has left; %d stay", self.name, len(self._ready))
                return
            log.error("%s: a worker %s", self.name, ending)
            self._bereave(jobs, ending)
            if failures > 1:
                await asyncio.sleep(backoff(failures - 1))
            while (successor := await self._successor()) is None:
                failures += 1
                await asyncio.sleep(backoff(failures))
            worker = successor
            self._trouble = ""
            self._ready[worker] = {}
            self._dispatch()

    async def _successor(self) -> Worker | None:
        try:
            worker, _ = await self._open()
        except (LoadFailed, OutOfMemory) as error:
            log.error("%s: a worker cannot be started again: %s", self.name, error)
            self._trouble = f"the model's worker has ended, and cannot be started again yet: {error}"
            if not self._ready:
                for job in self._waiting:
                    job.fail(NotReady(self._trouble, RETRY_AFTER_SECONDS))
                self._waiting.clear()
            return None
        log.info("%s: a worker has taken its place", self.name)
        return worker

    def _bereave(self, jobs: dict[int, Job], ending: str) -> None:
        """Make the calls of a lost worker anew: those that it was busy with only once, and no stream half told."""
        again: list[Job] = []
        busy = True
        for job in jobs.values():
            job.worker = None
            suspect = busy and not job.begun
            busy = busy and (not suspect or self._settings.at_once > 0)
            if job.over:
                continue
            if job.begun or (suspect and not job.may_retry):
                job.fail(loss_of(ending))
                continue
            if suspect:
                job.may_retry = False
            again.append(job)
        self._waiting.extendleft(reversed(again))
        self._dispatch()

    async def _watch_memory(self) -> None:
        limit = self._settings.memory_bytes
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for worker in self._ready:
                if worker.resident_bytes() > limit:
                    for job in self._ready[worker].values():
                        job.may_retry = False
                    worker.kill(f"used more memory than its limit of {limit >> 20} MiB")
