"""A request's body: read within limits on bytes, chunks and time, its content coding undone within the same limits."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

from gateway.bodies import SMALL_BYTES, Bodies
from gateway.config import LimitsConfig
from gateway.deadlines import within
from gateway.errors import BodyTimeout, BodyTooLarge, MalformedBody, UnsupportedMedia
from gateway.steps import in_task
from gateway.types import Call

R = TypeVar("R")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
"""ASGI's."""

Arrived = Callable[[], bytes | None]
"""Takes a body that has come as a whole."""

LONG_SECONDS = 0.05
"""How long a run may take before it is looked whether its client is still there."""

_GZIP = 16 + zlib.MAX_WBITS
_OFFLOAD = 4 * 1024
"""Compressed bytes from which inflating is moved off the event loop: they may grow a thousandfold, 25 ms' work."""
_PIECE = 16 * 1024
_MOST_MEMBERS = 16_384
"""Tools that write members at all make one for each 64 KB or more."""


class ClientGone(Exception):
    """The client hung up before it had its answer; there is nobody to tell."""


class Body:
    """The body still on its way."""

    complete = False
    size = 0
    """Bytes received."""
    sent = b""
    """All of it as the client sent it, once it is read."""
    _late = False
    _held = 0
    """Bytes that count among all bodies'."""

    def __init__(
        self, receive: Receive, limits: LimitsConfig, bodies: Bodies | None = None, arrived: Arrived | None = None
    ) -> None:
        self._receive = receive
        self._arrived = arrived
        self._limits = limits
        self._bodies = bodies
        self._uncounted = min(SMALL_BYTES, limits.body_bytes)

    def check_length(self, call: Call) -> None:
        """Raise BodyTooLarge for a declared length over the limit, before anything is read; Overloaded without room."""
        declared = call.header(b"content-length")
        if declared is not None and declared.isdecimal() and (size := int(declared[:20])) > self._uncounted:
            if size > self._limits.body_bytes:
                raise self._too_large()
            if self._bodies is not None:
                self._bodies.check(size)

    def unread(self, call: Call) -> bool:
        """Whether more may still come than is worth reading to the end for the connection's sake."""
        if self.complete or self._late:
            return self._late
        declared = call.header(b"content-length")
        if declared is None:
            return call.header(b"transfer-encoding") is not None
        return not declared.isdecimal() or int(declared[:20]) > self._limits.body_bytes

    async def read(self, call: Call, *, ignores_unknown_codings: bool) -> bytes:
        """All of it, decoded. Raises BodyTooLarge, BodyTimeout, UnsupportedMedia, MalformedBody or ClientGone."""
        gzipped = _is_gzip(call, ignores_unknown_codings)
        # PERF: most have come before they are asked for, and need neither messages nor a timer.
        body = self._arrived() if self._arrived is not None else None
        if body is not None:
            self._counted(body)
        else:
            body = await within(self._gather(), self._limits.body_seconds, self._too_late)
        self.complete = True
        self.sent = body
        if not gzipped:
            return body
        if len(body) > _OFFLOAD:
            content = await asyncio.to_thread(inflate, body, self._limits.body_bytes)
        else:
            content = inflate(body, self._limits.body_bytes)
        if len(content) > SMALL_BYTES:
            self._hold(self.size + len(content))
        return content

    def close(self) -> None:
        """Nobody needs it any more."""
        if self._bodies is not None and self._held:
            self._bodies.free(self._held)
            self._held = 0

    async def discard(self, seconds: float, most: int) -> None:
        """Read on and drop what comes, so that a client still sending gets to read the answer it was sent."""
        try:
            async with asyncio.timeout(seconds):
                while self.size < most:
                    message = await self._receive()
                    self.size += len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body"):
                        return
        except TimeoutError:
            return

    async def unless_gone(self, run: Coroutine[Any, Any, R], after: float = LONG_SECONDS) -> R:
        """What a long run gives, once the body is read; it is cancelled if the client leaves. Raises ClientGone."""
        await in_task()
        loop, running = asyncio.get_running_loop(), asyncio.current_task()
        watches: list[asyncio.Task[None]] = []
        gone = False

        async def watch() -> None:
            nonlocal gone
            # NOTE: over gRPC nothing is ever received but the message again; there the whole call is cancelled.
            if (await self._receive())["type"] == "http.disconnect" and running is not None:
                gone = True
                running.cancel()

        # PERF: a timer costs a run that turns out to be short 2 us, two tasks would cost it 40.
        timer = loop.call_later(after, lambda: watches.append(loop.create_task(watch())))
        try:
            return await run
        except asyncio.CancelledError:
            if gone and running is not None and running.uncancel() == 0:
                raise ClientGone from None
            raise
        finally:
            timer.cancel()
            for task in watches:
                task.cancel()

    async def _gather(self) -> bytes:
        chunks: list[bytes] = []
        more = True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGone
            chunks.append(self._counted(message.get("body", b"")))
            if len(chunks) > self._limits.body_chunks:
                raise BodyTooLarge(f"the body came in more than {self._limits.body_chunks} chunks")
            more = message.get("more_body", False)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _counted(self, body: bytes) -> bytes:
        self.size += len(body)
        if self.size > self._uncounted:
            if self.size > self._limits.body_bytes:
                raise self._too_large()
            self._hold(self.size)
        return body

    def _hold(self, size: int) -> None:
        if self._bodies is None:
            return
        if size > self._bodies.largest:
            self._bodies.check(size)
        more, self._held = size - self._held, size
        self._bodies.hold(more)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is larger than the limit of {self._limits.body_bytes} bytes")

    def _too_late(self) -> BodyTimeout:
        self._late = True
        return BodyTimeout(f"the body did not arrive within {self._limits.body_seconds:g} seconds")


def _is_gzip(call: Call, ignores_unknown: bool) -> bool:
    """Raises UnsupportedMedia for codings that nobody here undoes."""
    coding = (call.header(b"content-encoding") or "").strip().lower()
    if coding in ("gzip", "x-gzip"):
        return True
    if coding and coding != "identity" and not ignores_unknown:
        raise UnsupportedMedia(f"Content-Encoding {coding[:64]!r} is not supported; send gzip or none")
    return False


def inflate(body: bytes, most: int) -> bytes:
    """The gzip members of a body, one after another. Raises BodyTooLarge over `most` bytes, MalformedBody."""
    parts: list[bytes] = []
    size = members = at = 0
    member = zlib.decompressobj(_GZIP)
    try:
        while at < len(body):
            # PERF: fed piece by piece, because each member's end copies all that it was fed and did not need.
            piece = body[at : at + _PIECE]
            part = member.decompress(piece, most + 1 - size)
            size += len(part)
            if size > most:
                raise BodyTooLarge(f"the decompressed body is larger than the limit of {most} bytes")
            parts.append(part)
            at += len(piece) - len(member.unused_data)
            if member.eof and at < len(body):
                members += 1
                if members > _MOST_MEMBERS:
                    raise BodyTooLarge(f"the gzip stream has more than {_MOST_MEMBERS} members")
                member = zlib.decompressobj(_GZIP)
    except zlib.error:
        raise MalformedBody("The document is empty: the gzip stream is corrupt") from None
    if body and not member.eof:
        raise MalformedBody("The document is empty: the gzip stream is truncated")
    return b"".join(parts)
