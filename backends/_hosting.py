"""A worker's side of a pool around one of our own backends: calls run side by side on one event loop."""

import asyncio
import contextlib
import ctypes
import faulthandler
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from backends._failure_frames import told
from backends._frames import (
    CANCEL,
    CREDIT,
    END,
    ERROR,
    PART,
    PARTS_AT_ONCE,
    READY,
    REQUEST,
    START,
    STATUS,
    Frame,
    Reader,
    Tensors,
    pack,
)
from gateway.errors import GatewayError, InferenceFailed, OutOfMemory
from gateway.interfaces import Backend, BackendStatus
from gateway.types import InferenceRequest, laps

PR_SET_PDEATHSIG = 1
CLOSE_SECONDS = 1.0
"""For a backend to free what it has; the gateway waits little longer."""

log = logging.getLogger("tensorgate.worker")

Open = Callable[[dict[str, Any]], Awaitable[Backend]]
"""Makes a backend of what START brings. Raises GatewayErrors only."""


def serve(connection: int, parent: int, open_backend: Open) -> None:
    """Answer calls until the gateway is gone; ends the process."""
    _die_with(parent)
    faulthandler.enable()
    ours = socket.socket(fileno=connection)
    os.set_inheritable(connection, False)
    asyncio.run(_serve(ours, open_backend))
    os._exit(0)  # threads of a model must not keep the process


async def _serve(connection: socket.socket, open_backend: Open) -> None:
    host = Host(open_backend)
    await asyncio.get_running_loop().create_unix_connection(lambda: host, sock=connection)
    await host.gone
    await host.close()


class Host(asyncio.BufferedProtocol):
    """The connection to the gateway, and the backend that answers on it."""

    def __init__(self, open_backend: Open) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_backend = open_backend
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None
        self._backend: Backend | None = None
        self._status: BackendStatus | None = None
        """As the gateway knows it."""
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._credits: dict[int, asyncio.Semaphore] = {}

    async def close(self) -> None:
        """End what runs, and free the backend."""
        for call in self._calls.values():
            call.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        if self._backend is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._backend.close()

    # As a protocol...

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._reader.filled(nbytes):
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    # Frames...

    def _take(self, frame: Frame) -> None:
        number = frame.header["id"]
        if frame.kind == START:
            self._begin(number, self._open(frame.header["order"]))
        elif frame.kind == REQUEST:
            self._begin(number, self._answer(number, frame))
        elif frame.kind == CREDIT and number in self._credits:
            for _ in range(frame.header["parts"]):
                self._credits[number].release()
        elif frame.kind == CANCEL and number in self._calls:
            self._calls[number].cancel()

    def _begin(self, number: int, call: Any) -> None:
        task = self._calls[number] = asyncio.create_task(call)
        task.add_done_callback(lambda _: self._over(number, task))

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        del self._calls[number]
        self._credits.pop(number, None)
        if task.cancelled():
            self._send(END, {"id": number, "parameters": {}})

    def _send(self, kind: int, header: dict[str, Any], tensors: Tensors | None = None) -> None:
        """Raises TypeError or ValueError for what cannot be sent."""
        buffers = pack(kind, header, tensors)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(buffers)

    # Calls...

    async def _open(self, order: dict[str, Any]) -> None:
        try:
            backend = self._backend = await self._open_backend(order)
            self._status = backend.status
            ready = {
                "metadata": backend.metadata,
                "status": self._status,
                "runs_at_once": getattr(backend, "runs_at_once", 1),
                "process_bytes": getattr(backend, "process_bytes", 0),
            }
            self._send(READY, {"id": 0, **msgspec.to_builtins(ready)})
        except Exception as error:
            self._send(ERROR, {"id": 0, **told(_own(error))})

    async def _answer(self, number: int, frame: Frame) -> None:
        if frame.header.get("laps"):
            laps.set([])
        try:
            assert self._backend is not None
            request = _request(frame)
            if request.stream:
                await self._flow(number, self._backend, request)
            else:
                response = await self._backend.infer(request)
                self.tell_status()
                self._reply(END, number, response.parameters, response.outputs)
        except Exception as error:
            self._send(ERROR, {"id": number, **told(_own(error)), **_laps()})

    async def _flow(self, number: int, backend: Backend, request: InferenceRequest) -> None:
        """An answer in parts, as fast as they are taken."""
        credit = self._credits[number] = asyncio.Semaphore(PARTS_AT_ONCE)
        parts = backend.stream(request)
        try:
            async for part in parts:
                await credit.acquire()
                self._reply(PART, number, part.parameters, part.outputs)
        finally:
            if close := getattr(parts, "aclose", None):
                await close()
        self.tell_status()
        self._reply(END, number, {}, {})

    def _reply(self, kind: int, number: int, parameters: Any, outputs: Tensors) -> None:
        try:
            self._send(kind, {"id": number, "parameters": dict(parameters), **_laps()}, outputs)
        except (TypeError, ValueError) as error:
            raise InferenceFailed(f"the answer cannot be handed on: {error}") from None

    def tell_status(self) -> None:
        """Say how the backend stands, if that is not known."""
        if self._status is not None and self._backend is not None and self._backend.status != self._status:
            self._status = self._backend.status
            self._send(STATUS, {"id": 0, "status": msgspec.to_builtins(self._status)})


def _request(frame: Frame) -> InferenceRequest:
    header = frame.header
    return InferenceRequest(
        frame.tensors,
        signature=header["signature"],
        outputs=tuple(header["outputs"]),
        parameters=header["parameters"],
        deadline=header["deadline"],
        id=header["name"],
        stream=header["stream"],
    )


def _laps() -> dict[str, Any]:
    """What the backend has told of itself, if it was to."""
    kept = laps.get()
    return {"laps": msgspec.to_builtins(kept)} if kept else {}


def _own(error: Exception) -> GatewayError:
    """The error as the gateway may tell it; what nobody expects is logged here, where its traceback is."""
    if isinstance(error, GatewayError):
        if error.__cause__ is not None:
            log.error("%s", error, exc_info=error.__cause__)
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory("there is not enough memory for this request")
    log.error("a call failed", exc_info=error)
    return InferenceFailed(f"internal error of the model: {type(error).__name__}; the log has its reason")


def _die_with(parent: int) -> None:
    """End when the gateway does, however it ends, even in the middle of a run."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was quicker
        os._exit(1)
