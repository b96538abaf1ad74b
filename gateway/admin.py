"""The admin listener: one ASGI application on a socket of its own, in the process that leads."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.fleet import ControlPlane
from gateway.relay import MESSAGE_BYTES
from gateway.websocket import WebSocketProtocol

_LEAVE_SECONDS = 2
"""How long its requests may take once the gateway has drained."""


class _Cycle(RequestResponseCycle):
    """uvicorn's, which writes to nobody whose connection is being closed."""

    async def send(self, message: Any) -> None:
        if self.transport.is_closing():
            self.disconnected = True  # NOTE: uvloop refuses writes from `close` on, before `connection_lost` says so
        await super().send(message)


class _Protocol(HttpToolsProtocol):
    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle is not None:
            # NOTE: uvicorn's protocol makes its own class by name, before its task first runs.
            self.cycle.__class__ = _Cycle


class _Listener(uvicorn.Server):
    """uvicorn's server, with the signals left to the gateway."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_admin(app: Any, sock: socket.socket) -> None:
    """Answer on that socket until cancelled."""
    server = _Listener(
        uvicorn.Config(
            app,
            interface="asgi3",
            http=_Protocol,
            ws=WebSocketProtocol,
            ws_max_size=MESSAGE_BYTES,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_LEAVE_SECONDS,
        )
    )
    serving = asyncio.ensure_future(server.serve([sock]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving


async def control(plane: ControlPlane, sock: socket.socket) -> None:
    """Let a control plane decide and answer on that socket, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plane.run())
        tasks.create_task(serve_admin(plane.app, sock))
