"""A client that does not read what it is sent is cut off: an answer that waits without end would keep its memory."""

import asyncio

from gateway.connections import Connections


class Stall:
    """Watches a connection that takes no more for now."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, bounds: Connections) -> None:
        self._loop = loop
        self._transport = transport
        self._bounds = bounds
        self._watch()

    def stop(self) -> None:
        """It has read on, or has gone."""
        self._timer.cancel()

    def _watch(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._bounds.limits.stall_seconds, self._look, unsent)

    def _look(self, before: int) -> None:
        if self._transport.get_write_buffer_size() < before:
            self._watch()
        else:
            self._bounds.refused["stall_seconds"] += 1
            self._transport.abort()
