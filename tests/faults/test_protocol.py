"""What a connection does with clients that say nothing, too much at once, or do not read."""

import asyncio
import socket

import uvicorn
from uvicorn.server import ServerState

from gateway.asgi import Exchange
from gateway.config import LimitsConfig, convert
from gateway.connections import Connections
from gateway.protocol import bounded
from gateway.types import Call

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

    def __init__(self, size: int, **limits: float) -> None:
        self._size = size
        self.bounds = Connections(convert(limits, LimitsConfig, "test"))
        self._kind = bounded(self.bounds)
        self._config = uvicorn.Config(
            self, http=self._kind, interface="asgi3", lifespan="off", log_config=None, proxy_headers=False
        )
        self._config.load()
        self._state = ServerState()

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        raise NotImplementedError

    async def respond(self, exchange: Exchange) -> None:
        """Send so many bytes."""
        headers = [(b"content-length", b"%d" % self._size)]
        await exchange.finish(200, headers, bytes(self._size))

    def converses(self, head: Call) -> bool:
        """It takes no websocket."""
        return False

    async def open(self) -> socket.socket:
        """The client's end."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._kind(config=self._config, server_state=self._state, app_state={}), theirs
        )
        return ours


def test_many_offers_to_upgrade_in_one_packet_are_all_answered() -> None:
    """Declining one does not nest in declining the one before."""

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection(sock=await Connection(1, pipelined=2_000).open())
        writer.write(OFFER * 2_000)
        got = await answers(reader, 2_000)
        writer.close()
        return got

    assert asyncio.run(exchange()).count(b"HTTP/1.1 200") == 2_000


def test_empty_lines_do_not_keep_an_idle_connection() -> None:
    """After an answer, CRLFs begin no request: the connection ends when its time is over."""

    async def idle() -> bytes:
        reader, writer = await asyncio.open_connection(sock=await Connection(1, idle_seconds=0.2).open())
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


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """An answer that waits for it without end would keep its memory."""

    async def stall() -> int:
        loop = asyncio.get_running_loop()
        client = await Connection(32 << 20, stall_seconds=0.1).open()
        await loop.sock_sendall(client, GET)
        await asyncio.sleep(0.5)
        got = 0
        while piece := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 5):
            got += len(piece)
        client.close()
        return got

    assert asyncio.run(stall()) < 32 << 20


def test_a_client_that_reads_slowly_gets_everything() -> None:
    """Only standing still ends a connection."""

    async def slow() -> int:
        loop = asyncio.get_running_loop()
        client = await Connection(4 << 20, stall_seconds=0.3).open()
        await loop.sock_sendall(client, GET)
        got = 0
        while got < 4 << 20:
            await asyncio.sleep(0.05)
            got += len(await asyncio.wait_for(loop.sock_recv(client, 1 << 18), 5))
        client.close()
        return got

    assert asyncio.run(slow()) >= 4 << 20


def test_more_requests_than_may_wait_end_the_connection() -> None:
    """One packet may hold thousands of small requests, each of which takes memory."""

    async def flood() -> bytes:
        reader, writer = await asyncio.open_connection(sock=await Connection(1, pipelined=100).open())
        writer.write(GET * 3_000)
        got = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return got

    assert b"more than 100 requests wait on this connection" in asyncio.run(flood())


def test_a_head_that_trickles_is_answered_408() -> None:
    """Slowloris: its time counts from its first byte, however many more come."""

    async def trickle() -> bytes:
        reader, writer = await asyncio.open_connection(sock=await Connection(1, head_seconds=0.2).open())
        reading = asyncio.ensure_future(reader.read())
        for byte in GET[:-2]:
            writer.write(bytes([byte]))
            await asyncio.wait([reading], timeout=0.02)
            if reading.done():
                break
        got = await asyncio.wait_for(reading, 5)
        writer.close()
        return got

    assert asyncio.run(trickle()).startswith(b"HTTP/1.1 408 ")


def test_a_connection_too_many_takes_the_place_of_an_idle_one() -> None:
    """Who has been answered and keeps the connection open makes room; where nobody is idle the new one is refused."""

    async def crowd() -> tuple[bytes, bytes, bytes]:
        shared = Connection(1, connections=2, idle_seconds=60)
        first_reader, first = await asyncio.open_connection(sock=await shared.open())
        first.write(GET)
        await answers(first_reader, 1)
        _, second = await asyncio.open_connection(sock=await shared.open())
        second.write(GET[:9])
        third_reader, third = await asyncio.open_connection(sock=await shared.open())
        third.write(GET[:9])
        closed = await asyncio.wait_for(first_reader.read(), 5)
        await asyncio.sleep(0.1)
        fourth_reader, fourth = await asyncio.open_connection(sock=await shared.open())
        refused = await asyncio.wait_for(fourth_reader.read(), 5)
        third.write(GET[9:])
        served = await answers(third_reader, 1)
        for writer in (first, second, third, fourth):
            writer.close()
        return closed, refused, served

    closed, refused, served = asyncio.run(crowd())
    assert closed == b""
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in refused
    assert b"HTTP/1.1 200" in served
