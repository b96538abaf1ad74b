"""What a connection does with clients that say nothing, too much at once, or do not read."""

import asyncio
import socket

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway import protocol
from gateway.app import Scope, Send
from gateway.body import Receive
from gateway.protocol import Protocol

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OFFER = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


async def answers(reader: asyncio.StreamReader, count: int) -> bytes:
    """Read until so many answers have come."""
    got = b""
    while got.count(b"HTTP/1.1 200") < count:
        piece = await asyncio.wait_for(reader.read(1 << 16), 10)
        assert piece, got[-200:]
        got += piece
    return got


class Connection:
    """One end of a connection whose other end is a Protocol; every request gets `size` bytes."""

    def __init__(self, size: int, keep_alive: float = 5) -> None:
        self._size = size
        self._config = uvicorn.Config(self._app, http=Protocol, interface="asgi3", lifespan="off", log_config=None)
        self._config.timeout_keep_alive = keep_alive  # type: ignore[assignment]
        self._config.load()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % self._size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(self._size)})

    async def open(self) -> socket.socket:
        """The client's end."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Protocol(config=self._config, server_state=ServerState(), app_state={}), theirs
        )
        return ours


def test_many_offers_to_upgrade_in_one_packet_are_all_answered() -> None:
    """Declining one does not nest in declining the one before."""

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection(sock=await Connection(1).open())
        writer.write(OFFER * 2_000)
        got = await answers(reader, 2_000)
        writer.close()
        return got

    assert asyncio.run(exchange()).count(b"HTTP/1.1 200") == 2_000


def test_empty_lines_do_not_keep_an_idle_connection() -> None:
    """After an answer, CRLFs begin no request: the connection ends when its time is over."""

    async def idle() -> bytes:
        reader, writer = await asyncio.open_connection(sock=await Connection(1, keep_alive=0.2).open())
        writer.write(GET)
        await answers(reader, 1)
        writer.write(b"\r\n")
        rest = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        return rest

    assert asyncio.run(idle()) in (b"", b"\0")


def test_a_request_after_empty_lines_is_answered() -> None:
    """They are skipped, and the next request is as good as any."""

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection(sock=await Connection(1).open())
        writer.write(GET)
        got = await answers(reader, 1)
        writer.write(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(GET)
        got += await answers(reader, 1)
        writer.close()
        return got

    assert asyncio.run(exchange()).count(b"HTTP/1.1 200") == 2


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that waits for it without end would keep its memory."""
    monkeypatch.setattr(protocol, "STALL_SECONDS", 0.1)

    async def stall() -> int:
        loop = asyncio.get_running_loop()
        client = await Connection(32 << 20).open()
        await loop.sock_sendall(client, GET)
        await asyncio.sleep(0.5)
        got = 0
        while piece := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 5):
            got += len(piece)
        client.close()
        return got

    assert asyncio.run(stall()) < 32 << 20


def test_a_client_that_reads_slowly_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only standing still ends a connection."""
    monkeypatch.setattr(protocol, "STALL_SECONDS", 0.3)

    async def slow() -> int:
        loop = asyncio.get_running_loop()
        client = await Connection(4 << 20).open()
        await loop.sock_sendall(client, GET)
        got = 0
        while got < 4 << 20:
            await asyncio.sleep(0.05)
            got += len(await asyncio.wait_for(loop.sock_recv(client, 1 << 18), 5))
        client.close()
        return got

    assert asyncio.run(slow()) >= 4 << 20
