"""A version whose workers another process has: several front processes use them as one, each over a line of its own.

No backend by itself: where many processes answer, the gateway puts here what has processes of its own. `receive` is
the other side, in the process that has them.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from backends._calls import RETRY_AFTER_SECONDS, backoff, header_of, request_frame
from backends._frames import CREDIT, START, pack
from backends._jobs import Job, StreamedJob
from backends._line import LOST, Line
from backends._reception import receive
from gateway.errors import GatewayError, LoadFailed, NotReady
from gateway.interfaces import Backend, BackendStatus, Upstream
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata

__all__ = ["Config", "join", "receive"]

MOST_TRIES = 3
"""How often the other process may end while it loads a version."""

log = logging.getLogger("tensorgate.workers")


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """There is nothing to set."""


async def join(name: str, address: Path, told: dict[str, Any]) -> Backend:
    """The version that was told of, once the process at the address has it ready. Raises LoadFailed or OutOfMemory."""
    hosted = HostedBackend(name, address, told)
    await hosted.open()
    return hosted


class HostedBackend:
    """A version that answers from the workers of another process."""

    metadata: ModelMetadata
    runs_at_once = 1
    process_bytes = 0
    """What its workers held of the machine's memory when it was ready."""

    def __init__(self, name: str, address: Path, told: dict[str, Any]) -> None:
        self.status = BackendStatus("process")
        self._name = name
        self._address = address
        self._told = told
        self._extras: dict[str, Any] = {}
        """The metadata's, which everybody shares: a server that was started again may be somewhere else."""
        self._numbers = itertools.count(1)
        self._line: Line | None = None
        self._trouble = LOST
        self._returning: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> None:
        """Have it ready for the first time. Raises LoadFailed or OutOfMemory."""
        for tries in range(1, MOST_TRIES + 1):
            try:
                self._line, header = await self._connect()
            except OSError:
                await asyncio.sleep(backoff(tries))
            else:
                self.metadata = msgspec.convert(header["metadata"] | {"extras": self._extras}, ModelMetadata)
                # NOTE: converted, the extras would be a copy.
                self.metadata = msgspec.structs.replace(self.metadata, extras=self._extras)
                return
        raise LoadFailed("the process that has the models' workers ended again and again while it loaded this version")

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run once."""
        line, number = self._there(), next(self._numbers)
        job = Job(number, request_frame(number, False, header_of(request), request.inputs), False)
        line.ask(job)
        try:
            return await job.answer
        finally:
            line.leave(job)
            job.tell_laps()

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The backend's parts."""
        line, number = self._there(), next(self._numbers)
        job = StreamedJob(number, request_frame(number, True, header_of(request), request.inputs), False)
        line.ask(job)
        try:
            while (part := await job.next()) is not None:
                if (parts := job.credit()) and not job.over:
                    line.send(pack(CREDIT, {"id": number, "parts": parts}))
                yield part
        finally:
            line.leave(job)
            job.tell_laps()

    async def close(self) -> None:
        """Let go of it; the workers end once nobody has it any more."""
        self._closing = True
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait([self._returning])
        if self._line is not None:
            self._line.close()

    def _there(self) -> Line:
        if self._line is None:
            raise NotReady(self._trouble, RETRY_AFTER_SECONDS)
        return self._line

    # The line...

    async def _connect(self) -> tuple[Line, dict[str, Any]]:
        """A line whose other side has the backend. Raises OSError, LoadFailed or OutOfMemory."""
        line = Line(self._note, self._lost)
        await asyncio.get_running_loop().create_unix_connection(lambda: line, str(self._address))
        try:
            line.send(pack(START, {"id": 0, "order": self._told}))
            header = await line.begun
            if line.over:  # it was lost before anybody could look
                raise ConnectionError(LOST)
        except BaseException:
            line.close()
            raise
        self._note(header)
        self.runs_at_once, self.process_bytes = header["runs_at_once"], header["process_bytes"]
        self._extras.update(_extras(header["metadata"].get("extras", {})))
        return line, header

    def _note(self, header: dict[str, Any]) -> None:
        self.status = msgspec.convert(header["status"], BackendStatus)

    def _lost(self, line: Line) -> None:
        if line is not self._line or self._closing:
            return
        log.error("%s: %s", self._name, LOST)
        self._line, self._trouble = None, LOST
        self.status = msgspec.structs.replace(self.status, note=LOST, ready=False)
        self._returning = asyncio.create_task(self._return(), name=f"line of {self._name}")

    async def _return(self) -> None:
        """Have it again, however long that takes."""
        for failures in itertools.count(1):
            await asyncio.sleep(backoff(failures))
            with contextlib.suppress(OSError):
                try:
                    self._line, _ = await self._connect()
                except GatewayError as error:
                    log.error("%s: cannot be loaded again: %s", self._name, error)
                    self._trouble = f"the model cannot be loaded again yet: {error}"
                    continue
                log.info("%s: answers again", self._name)
                return


def _extras(told: Mapping[str, Any]) -> dict[str, Any]:
    """As the backend itself gave them."""
    if "upstream" not in told:
        return dict(told)
    return {**told, "upstream": msgspec.convert(told["upstream"], Upstream)}
