"""The side of a process whose backends others use: each line begins with an order, and gets its backend."""

import asyncio
import socket
from typing import Any

from backends._hosting import Host, Open

LOOK_SECONDS = 0.5
"""Between two looks at whether a backend stands otherwise than those who use it know."""


async def receive(listening: socket.socket, open_backend: Open) -> "Reception":
    """Answer whoever connects to the socket, from now on."""
    reception = Reception(open_backend)
    # NOTE: uvloop stops listening once nobody holds the server.
    reception.server = await asyncio.get_running_loop().create_unix_server(reception.host, sock=listening)
    return reception


class Reception:
    """The lines that are open."""

    server: asyncio.Server

    def __init__(self, open_backend: Open) -> None:
        self._open_backend = open_backend
        self._attending: set[asyncio.Task[None]] = set()

    def host(self) -> Host:
        """The protocol of a new line."""
        host = Host(self._open_backend)
        task = asyncio.create_task(self._attend(host))
        self._attending.add(task)
        task.add_done_callback(self._attending.discard)
        return host

    async def emptied(self) -> None:
        """Wait until every line is closed."""
        while self._attending:
            await asyncio.wait(self._attending)

    async def _attend(self, host: Host) -> None:
        gone: set[asyncio.Future[Any]] = {host.gone}
        while not host.gone.done():
            await asyncio.wait(gone, timeout=LOOK_SECONDS)
            host.tell_status()
        await host.close()
