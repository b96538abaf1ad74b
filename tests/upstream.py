"""A server behind the gateway that does exactly what a test says, byte for byte, and tells what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

Script = Callable[["Exchange"], Awaitable[None]]


def answer(document: Any, status: int = 200, **headers: str) -> bytes:
    """A whole answer; `retry_after` is the header Retry-After."""
    body = document if isinstance(document, bytes) else msgspec.json.encode(document)
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *lines])
    return head.encode() + b"\r\n\r\n" + body


EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def event(document: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def delta(text: str, reason: str | None = None, **more: Any) -> bytes:
    """A chunk of a chat."""
    return event({"choices": [{"index": 0, "delta": {"content": text, **more}, "finish_reason": reason}]})


def chat(text: str, **more: Any) -> dict[str, Any]:
    """A whole chat answer."""
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text, **more}, "finish_reason": "stop"}]
    }


class Exchange:
    """One request that came, and the connection to answer on."""

    def __init__(self, head: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.body, self._reader, self._writer = body, reader, writer

    @property
    def document(self) -> Any:
        """The body, which is JSON."""
        return msgspec.json.decode(self.body)

    async def send(self, data: bytes) -> None:
        """Write."""
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> None:
        """Return once the other side has closed the connection."""
        await self._reader.read()

    def reset(self) -> None:
        """Break off without a word."""
        self._writer.transport.abort()


class Upstream:
    """A running server; `asked` are the requests so far, the probes at load left out."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Exchange] = []
        self.url = ""
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, call by call."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while True:
                first = await reader.readexactly(1)
                if first == b"\x16":  # the beginning of a TLS handshake
                    return
                head = (first + await reader.readuntil(b"\r\n\r\n")).decode().strip()
                length = next(
                    (int(line[15:]) for line in head.lower().split("\r\n") if line[:15] == "content-length:"), 0
                )
                exchange = Exchange(head, await reader.readexactly(length), reader, writer)
                if exchange.path.endswith("/models"):
                    await exchange.send(answer({"data": []}))
                    continue
                self.asked.append(exchange)
                await self.script(exchange)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def upstream(script: Script, context: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
    """Such a server for the length of an `async with` block."""
    running = Upstream(script)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0, ssl=context)
    running.url = f"http{'s' if context else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        for task in running.tasks:
            task.cancel()
        await asyncio.gather(*running.tasks, return_exceptions=True)


def always(*data: bytes) -> Script:
    """Answer every request so, and leave the connection open."""

    async def script(exchange: Exchange) -> None:
        for one in data:
            await exchange.send(one)

    return script


def ending(*data: bytes) -> Script:
    """Answer so, then close the connection."""

    async def script(exchange: Exchange) -> None:
        for one in data:
            await exchange.send(one)
        raise ConnectionError

    return script


async def reset(exchange: Exchange) -> None:
    """Break off before an answer has begun."""
    exchange.reset()
    raise ConnectionError
