"""A process's connection to a backend that another process has: calls go out, answers and parts come back."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import msgspec

from backends._calls import RETRY_AFTER_SECONDS, failure_of, refusal_of, response_of
from backends._frames import CANCEL, END, PART, READY, STATUS, Buffer, Frame, Reader, pack
from backends._jobs import Job
from gateway.errors import NotReady
from gateway.types import InferenceResponse, Lap

LOST = "the process that has the models' workers has ended; it is being restarted, the request may be repeated"

log = logging.getLogger("tensorgate.workers")


class Line(asyncio.BufferedProtocol):
    """One connection, from its START to its end."""

    def __init__(self, on_status: Callable[[dict[str, Any]], None], on_end: Callable[["Line"], None]) -> None:
        self.begun: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        """What the other side says of the backend once it has it; ConnectionError if it has gone before."""
        self._on_status = on_status
        self._on_end = on_end
        self._reader = Reader()
        self._jobs: dict[int, Job] = {}
        self._transport: asyncio.Transport | None = None
        self.over = False

    def ask(self, job: Job) -> None:
        """Send the call; its answer is the job's."""
        self._jobs[job.number] = job
        self.send(job.frame)
        job.frame = []

    def leave(self, job: Job) -> None:
        """Nobody waits for the answer any more."""
        if self._jobs.pop(job.number, None) is not None:
            self.send(pack(CANCEL, {"id": job.number}))

    def send(self, buffers: list[Buffer]) -> None:
        """Send a frame, if there is still somebody to read it."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(buffers)

    def close(self) -> None:
        """The other side lets go of the backend."""
        if self._transport is not None:
            self._transport.close()

    # As a protocol...

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.filled(nbytes):
                self._take(frame)
        except Exception:
            log.exception("what came from the process with the workers is no answer")
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.fail(NotReady(LOST, RETRY_AFTER_SECONDS))
        if not self.begun.done():
            self.begun.set_exception(ConnectionError(LOST))
        self._on_end(self)

    # Frames...

    def _take(self, frame: Frame) -> None:
        if frame.kind == STATUS:
            self._on_status(frame.header)
        elif not self.begun.done():
            if frame.kind == READY:
                self.begun.set_result(frame.header)
            else:
                self.begun.set_exception(refusal_of(frame.header))
        elif (job := self._jobs.get(frame.header["id"])) is not None:
            if frame.kind == PART:
                job.part(response_of(frame))
                return
            job.laps = msgspec.convert(frame.header.get("laps", ()), tuple[Lap, ...])
            answer: InferenceResponse | Exception
            answer = response_of(frame) if frame.kind == END else failure_of(frame.header)
            del self._jobs[job.number]
            if isinstance(answer, InferenceResponse):
                job.end(answer)
            else:
                job.fail(answer)
