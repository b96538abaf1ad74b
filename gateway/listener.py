"""What listens on a port and leaves in order: whoever is in the queue then is still answered."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import cast

import uvicorn

from gateway.protocol import Protocol


class Listener(uvicorn.Server):
    """uvicorn's server, with the signals left to its caller, that answers whoever is in the queue when it closes."""

    keeps_sockets = False
    """Whether others go on listening on its sockets: then the queue is theirs."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, serve the connections that the kernel has accepted already, and wait for all to end."""
        loop = asyncio.get_running_loop()
        closing = () if self.keeps_sockets else sockets or ()
        waiting = [connection for listening in closing for connection in _last_connections(listening)]
        for connection in waiting:
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(self._protocol, connection)
        await super().shutdown(sockets)

    def _protocol(self) -> Protocol:
        kind = cast(type[Protocol], self.config.http_protocol_class)
        return kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def _last_connections(listening: socket.socket) -> list[socket.socket]:
    """Empty the queue, then refuse: a queue that dies with its socket would reset the connections in it."""
    waiting = []
    with contextlib.suppress(OSError):
        while True:
            waiting.append(listening.accept()[0])
    with contextlib.suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
    return waiting
