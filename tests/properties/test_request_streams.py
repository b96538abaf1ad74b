"""What a connection makes of a stream of requests, however it is cut into packets and whatever is known of a head."""

import asyncio
import itertools
import json
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from uvicorn.server import ServerState

from gateway.asgi import Exchange
from gateway.config import LimitsConfig
from gateway.connections import Connections
from gateway.protocol import Protocol, bounded
from gateway.steps import Turn
from gateway.types import Call


class Request(Struct, frozen=True):
    """One request: what is sent, and what is to be understood."""

    method: str
    path: str
    body: bytes
    chunked: bool = False
    more: str = ""

    def sent(self) -> bytes:
        """On the wire."""
        framing, body = "", self.body
        if self.chunked:
            framing, body = "Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        elif body or self.method == "POST":
            framing = f"Content-Length: {len(body)}\r\n"
        return f"{self.method} {self.path} HTTP/1.1\r\nHost: a\r\n{framing}{self.more}\r\n".encode() + body

    def understood(self) -> list[str]:
        """As the application tells it."""
        return [self.method, self.path, self.body.decode(), "yes" if self.more else "no"]


class Application:
    """What a protocol is made for."""

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        raise NotImplementedError

    def converses(self, head: Call) -> bool:
        """It takes no websocket."""
        return False


class Echo(Application):
    """An application that answers with what it was asked."""

    async def respond(self, exchange: Exchange) -> None:
        """Tell it, once the body is here."""
        body = exchange.arrived()
        if body is None:
            body, more = b"", True
            while more:
                message = await exchange.receive()
                body, more = body + message["body"], message["more_body"]
        head = exchange.head
        told = json.dumps([head.method, head.raw_path, body.decode(), head.header(b"x-more") or "no"]).encode() + b"\n"
        await exchange.finish(200, [(b"content-length", b"%d" % len(told))], told)


class Waiting(Application):
    """An application whose answers wait for a turn."""

    def __init__(self) -> None:
        self.turn: Turn[None] = Turn()

    async def respond(self, exchange: Exchange) -> None:
        """Wait."""
        await self.turn


class Wire(asyncio.Transport):
    """A connection's other end."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        """What is fed comes all the same."""

    def resume_reading(self) -> None:
        """It was never paused."""

    def answers(self) -> list[Any]:
        """The bodies of what was sent so far."""
        return [json.loads(line) for line in self.written.split(b"\n") if line.startswith(b"[")]


def connected(application: Application | None = None) -> tuple[Protocol, Wire]:
    application = application or Echo()
    kind = bounded(Connections(LimitsConfig()))
    config = uvicorn.Config(
        application, http=kind, interface="asgi3", lifespan="off", log_config=None, proxy_headers=False
    )
    config.load()
    protocol, wire = kind(config=config, server_state=ServerState(), app_state={}), Wire()
    protocol.connection_made(wire)
    return protocol, wire


requests = st.sampled_from(
    [
        Request("POST", "/a", b"0123456789"),
        Request("POST", "/a", b"9876543210"),
        Request("POST", "/a", b"GET / HTTP"),  # as long, and no request
        Request("POST", "/b", b"0123456789"),
        Request("POST", "/a", b"01"),
        Request("POST", "/a", b""),
        Request("GET", "/a", b""),
        Request("POST", "/a", b"0123456789", chunked=True),
        Request("POST", "/a", b"0123456789", more="X-More: yes\r\n"),
        Request("POST", "/a", b"0123456789", more="X-More: yes\r\nExpect: 100-continue\r\n"),
        Request("GET", "/a", b"", more="X-More: yes\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(requests, min_size=1, max_size=12), st.lists(st.integers(1, 90), max_size=40), st.data())
def test_every_request_of_a_stream_is_understood(stream: list[Request], cuts: list[int], data: st.DataObject) -> None:
    """One after another or all at once, in packets of any size, with heads that come again and heads that do not."""
    waits = data.draw(st.booleans())

    async def exchange() -> list[Any]:
        protocol, wire = connected()
        sizes = iter(cuts)
        pieces = [one.sent() for one in stream] if waits else [b"".join(one.sent() for one in stream)]
        for piece in pieces:
            while piece:
                size = next(sizes, len(piece))
                protocol.data_received(piece[:size])
                piece = piece[size:]
                if size % 2:
                    await asyncio.sleep(0)
            if waits:
                await asyncio.sleep(0)
        for _ in range(4 * len(stream)):
            await asyncio.sleep(0)
        assert not wire.closing
        protocol.connection_lost(None)
        return wire.answers()

    assert asyncio.run(exchange()) == [request.understood() for request in stream]


@pytest.mark.parametrize("cut", [1, 20, 60, 61, 65], ids=lambda cut: f"cut at {cut}")
def test_a_head_that_comes_again_is_not_parsed_again(cut: int) -> None:
    """Its body may come with it or behind it; a head that is cut itself is left to the parser."""
    request = Request("POST", "/a", b"0123456789")
    sent = request.sent()
    head = len(sent) - len(request.body)

    async def parsed() -> int:
        protocol, wire = connected()
        protocol.data_received(sent)
        fed: list[bytes] = []
        parser = protocol.parser

        class Counting:
            """The parser, and what it is fed."""

            def __getattr__(self, name: str) -> Any:
                return getattr(parser, name)

            def feed_data(self, data: bytes) -> None:
                fed.append(data)
                parser.feed_data(data)

        protocol.parser = Counting()  # type: ignore[assignment]
        for piece in (sent[:cut], sent[cut:]):
            protocol.data_received(piece)
        await asyncio.sleep(0)
        assert wire.answers() == [request.understood()] * 2
        protocol.connection_lost(None)
        return len(fed)

    assert asyncio.run(parsed()) == (0 if cut >= head else 2)


def test_heads_that_never_come_again_are_remembered_no_more() -> None:
    """A client that puts an id of its own into each head costs a copy of a few of them only."""

    async def told() -> list[bool]:
        protocol, _ = connected()
        remembered = []
        for number in range(12):
            protocol._known = None
            protocol.data_received(Request("POST", f"/{number}", b"01").sent())
            remembered.append(protocol._known is not None)
        protocol.connection_lost(None)
        return remembered

    assert asyncio.run(told()) == [True] * 8 + [False] * 4


def test_what_waits_for_its_batch_is_given_up_when_its_client_leaves() -> None:
    """Nobody would get the answer."""

    async def left() -> bool:
        application = Waiting()
        protocol, _ = connected(application)
        loop = asyncio.get_running_loop()
        loop.call_soon(protocol.data_received, Request("POST", "/a", b"01").sent())
        await asyncio.sleep(0)
        assert not application.turn.done()
        loop.call_soon(protocol.connection_lost, None)
        await asyncio.sleep(0)
        return application.turn.cancelled()

    assert asyncio.run(left())


def test_requests_of_one_packet_let_others_in_between() -> None:
    """Only the first is answered at once: a thousand of them must not keep the event loop."""

    async def told() -> list[int]:
        protocol, wire = connected()
        counts = []
        protocol.data_received(Request("POST", "/a", b"01").sent() * 3)
        for _ in range(6):
            counts.append(len(wire.answers()))
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        return counts

    counts = asyncio.run(told())
    assert counts[0] == 1
    assert counts[-1] == 3
    assert all(after - before <= 1 for before, after in itertools.pairwise(counts))
