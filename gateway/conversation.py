"""A websocket that an adapter speaks: each text that comes in is one call, answered in texts, one call at a time.

The client may close at any moment, which ends the call that runs; what it sends meanwhile waits for its turn.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.bodies import Bodies
from gateway.body import Body, ClientGone, Message, Receive
from gateway.config import LimitsConfig
from gateway.pipeline import Pipeline
from gateway.races import until_one_ends
from gateway.streaming import closing
from gateway.trace import Trace
from gateway.types import Call, Reply

WAITING_CALLS = 16
"""Texts that may wait for their turn; a client that sends more is cut off."""
POLICY_VIOLATION, GOING_AWAY = 1008, 1001

Send = Callable[[Message], Awaitable[None]]
Begin = Callable[[], Trace]
"""Counts a call that begins."""
Recorded = Callable[[Call, bytes, Reply, Trace], Reply]
"""Notes an answer down, and returns the one to send."""
End = Callable[[Trace], None]


class Conversation:
    """One open websocket."""

    def __init__(
        self, pipeline: Pipeline, head: Call, limits: LimitsConfig, bodies: Bodies, receive: Receive, send: Send
    ) -> None:
        self._pipeline = pipeline
        self._head = head
        self._limits = limits
        self._bodies = bodies
        self._receive = receive
        self._send = send
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()

    async def run(self, begin: Begin, recorded: Recorded, end: End) -> None:
        """Answer until the client has closed it, or has sent too much at once."""
        listening = asyncio.ensure_future(self._listen())
        answering = asyncio.ensure_future(self._answer_all(begin, recorded, end))
        await until_one_ends(listening, answering)
        for task in (listening, answering):
            if not task.cancelled():
                task.result()

    async def _listen(self) -> None:
        while (message := await self._receive())["type"] == "websocket.receive":
            if len(self._waiting) >= WAITING_CALLS or sum(map(len, self._waiting)) > self._limits.body_bytes:
                reason = f"more than {WAITING_CALLS} calls wait, or more than {self._limits.body_bytes} bytes of them"
                await self._send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
                return
            text, data = message.get("text"), message.get("bytes")
            self._waiting.append(text.encode() if text is not None else data or b"")
            self._news.set()

    async def _answer_all(self, begin: Begin, recorded: Recorded, end: End) -> None:
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            if self._pipeline.draining:
                await self._send({"type": "websocket.close", "code": GOING_AWAY, "reason": "the gateway is leaving"})
                return
            trace = begin()
            try:
                await self._answer(self._waiting.popleft(), trace, recorded)
            finally:
                end(trace)

    async def _answer(self, text: bytes, trace: Trace, recorded: Recorded) -> None:
        trace.bytes_in = len(text)
        body = Body(_whole(text), self._limits, self._bodies, lambda: text)
        try:
            reply = await self._pipeline.answer(self._head, body, trace)
        except ClientGone:
            return
        finally:
            body.close()
        reply = recorded(self._head, text, reply, trace)
        if isinstance(reply.body, bytes):
            await self._say(reply.body, trace)
        else:
            await self._say_all(reply, trace)
        trace.status = reply.status

    async def _say_all(self, reply: Reply, trace: Trace) -> None:
        assert not isinstance(reply.body, bytes)
        async with closing(reply.body) as chunks:
            async for chunk in chunks:
                await self._say(chunk, trace)

    async def _say(self, chunk: bytes, trace: Trace) -> None:
        trace.bytes_out += len(chunk)
        await self._send({"type": "websocket.send", "text": chunk.decode()})


def _whole(text: bytes) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    """The text as a request's body that has arrived; that the client leaves, the conversation itself sees."""
    told = [{"type": "http.request", "body": text, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if told:
            return told.pop()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    return receive
