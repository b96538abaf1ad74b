"""A streamed answer that is noted down on its way, up to so many bytes; nothing waits for that."""

from collections.abc import AsyncIterator, Callable

from gateway.payloadrecord import Ending
from gateway.streaming import Closable

Over = Callable[[bytes, bool, Ending], None]
"""Told what was kept, whether there was more, and how it ended."""


class Recorded:
    """The same chunks."""

    def __init__(self, chunks: AsyncIterator[bytes], most: int, joint: bytes, over: Over) -> None:
        self._chunks = chunks
        self._left = most
        self._joint = joint
        self._over: Over | None = over
        self._kept: list[bytes] = []
        self._cut = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._end("whole")
            raise
        except Exception:
            self._end("broken")
            raise
        self._note(chunk)
        return chunk

    async def aclose(self) -> None:
        """Nobody asks for more."""
        try:
            if isinstance(self._chunks, Closable):
                await self._chunks.aclose()
        finally:
            self._end("left")

    def _note(self, chunk: bytes) -> None:
        noted = chunk[: self._left]
        self._cut |= len(noted) < len(chunk)
        self._left -= len(noted)
        if noted:
            self._kept.append(noted)

    def _end(self, ended: Ending) -> None:
        over, self._over = self._over, None
        if over is not None:
            over(self._joint.join(self._kept), self._cut, ended)
