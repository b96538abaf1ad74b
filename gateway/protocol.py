"""HTTP/1.1 as uvicorn speaks it, with bounds on a request's head, without upgrades, and with an orderly end."""

import asyncio
import typing
from http import HTTPStatus
from typing import cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.connections import Connections
from gateway.cycle import Cycle, Responder
from gateway.knownhead import MOST_MISSES, KnownHead, known
from gateway.limitsconfig import LimitsConfig
from gateway.stall import Stall
from gateway.steps import Steps
from gateway.types import Call

_GREETING_SECONDS = 1.0
"""A connection that has said nothing for so long is idle."""
_AT_ONCE_BYTES = 1 << 16
"""Requests with larger bodies wait until all connections have been read, whose clients could not send on meanwhile."""
FIRST_REQUEST_SECONDS = 0.5
"""How long a new connection may take to send its request once the gateway is leaving."""


class Application(Responder, typing.Protocol):
    """What is asked of the application beside ASGI."""

    def converses(self, head: Call) -> bool:
        """Whether a websocket is taken there."""


class _TooMuch(Exception):
    """Raised inside the parser, which turns it into its own error and stops."""


class Protocol(HttpToolsProtocol):
    """One client connection."""

    bounds = Connections(LimitsConfig())
    """Shared by the connections of a port; `bounded` sets them."""

    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None
    _stall: Stall | None = None
    _idle_since = 0.0
    _idle_seconds = 0.0
    _resuming = False
    _unused = True
    _last_request = False
    _offers = False
    """Whether the request offers to upgrade; then the parser takes its head for the whole of it."""
    _upgrades = False
    _at_once = True
    """Whether a request may be answered before the next packet: one may, others of its packet wait for their turn."""
    _next: Cycle | None = None
    """A request that is to be answered."""
    _between = True
    """Whether the parser waits for a request to begin."""
    _fresh = b""
    """What was received last, if a request begins with it."""
    _known: KnownHead | None = None
    _misses = 0
    _left = 0
    """Bytes of a body behind a known head that have not come."""
    _steps: Steps | None = None
    """The one that is, or was the last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        bounds = self.bounds
        bounds.open += 1
        self._head_timer = self.loop.call_later(bounds.limits.head_seconds, self._head_late)
        if bounds.open > bounds.most and not self._make_room():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open; try again", "connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self.bounds.open -= 1
        self._stop_head_timer()
        self._stop_stall()
        super().connection_lost(exc)
        if self._steps is not None:
            self._steps.cancel()  # a request that waits for its batch is not run for nobody

    def data_received(self, data: bytes) -> None:
        self._at_once = True
        try:
            # One packet may bring many requests, each with an offer to upgrade.
            while data:
                data = self._feed(data)
        except httptools.HttpParserError:
            self._unset_keepalive_if_required()
            self.send_400_response("the request is not valid HTTP")

    def _feed(self, data: bytes) -> bytes:
        """Parse as far as the parser goes; returns what is left for the next one."""
        if self._left:
            return self._take(data, 0)
        if self._between:
            if (head := self._known) is not None and data.startswith(head.raw) and self._goes_on():
                self._misses, self._left = 0, head.length
                self._next = self.cycle = Cycle(head.call, self)
                return self._take(data, len(head.raw))
            self._fresh = data
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._upgrades:
                self.handle_websocket_upgrade()
                if rest:
                    self.transport.get_protocol().data_received(rest)  # type: ignore[attr-defined]
                return b""
            self._decline_upgrade()
            return rest
        if self._in_head:
            self._head_continues(len(data))
        elif self._next is not None and self._next.more_body:
            # The rest may be in the next packet, which may be here already.
            self.loop.call_soon(self._begin)
        return b""

    def _goes_on(self) -> bool:
        """Whether the request before has been answered, and another may follow."""
        return self.cycle.response_complete and self.cycle.keep_alive and not self.transport.is_closing()

    def _take(self, data: bytes, start: int) -> bytes:
        """The body behind a known head, as far as it is here; returns what lies behind it."""
        end = start + self._left
        piece = data[start:end]
        self._left -= len(piece)
        cycle = cast(Cycle, self.cycle)
        if not cycle.response_complete:
            cycle.grow(piece)
            if not self._left:
                self._end(cycle)
            elif self._next is not None:
                self.loop.call_soon(self._begin)
        return data[end:]

    def _head_continues(self, size: int) -> None:
        """Part of a head came. The parser keeps an unfinished line to itself, so it is counted here."""
        self._head_bytes += size
        if self._head_bytes > 2 * self.bounds.limits.head_bytes:
            self.send_400_response("")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.bounds.limits.head_seconds, self._head_late)

    def _head_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or not self._in_head:
            return
        if self._head_bytes:
            seconds = self.bounds.limits.head_seconds
            text = f"the request's head took more than {seconds:g} seconds"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, text, "head_seconds")
        else:
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # A client that does not read...

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = Stall(self.loop, self.transport, self.bounds)

    def resume_writing(self) -> None:
        self._stop_stall()
        super().resume_writing()

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.stop()
            self._stall = None

    # What the parser tells...

    def _should_upgrade(self) -> bool:
        """For uvicorn, which asks at every step of such a request."""
        return self._upgrades

    def _may_converse(self) -> bool:
        """Whether the request becomes a websocket: that is what it offers, and the application takes it."""
        if self._get_upgrade() != b"websocket":
            return False
        if self.cycle is not None and not self.cycle.response_complete:
            return False  # it came behind another request, whose answer is still on its way
        return cast(Application, self.app).converses(self._head("GET"))

    def _decline_upgrade(self) -> None:
        """Read on as HTTP/1.1: a server may ignore an offer to upgrade (RFC 9110, 7.8).

        Java's HttpClient offers h2c with every first request, its body following; the parser stops there, so a new
        one takes over behind a head that says only how the body is framed.
        """
        framing = [
            name + b": " + value + b"\r\n"
            for name, value in self.headers
            if name in (b"content-length", b"transfer-encoding")
        ]
        self.parser = httptools.HttpRequestParser(self)
        self._offers = False
        self._resuming = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
        self._resuming = False

    def on_message_begin(self) -> None:
        self._between = False
        if not self._resuming:
            self.url = b""
            self.headers = []
            self._head_bytes = 0
            self._in_head = True

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            self.url += url
            self._head_bytes += len(url)
            if self._is_too_large():
                raise _TooMuch

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._resuming:
            self.headers.append((name.lower(), value))
            self._head_bytes += len(name) + len(value)
            limits = self.bounds.limits
            if self._head_bytes > limits.head_bytes or len(self.headers) > limits.head_headers:
                raise _TooMuch

    def on_headers_complete(self) -> None:
        if self._resuming:
            return
        self._in_head = False
        self._stop_head_timer()
        self._offers = self.parser.should_upgrade()
        self._upgrades = self._offers and self._may_converse()
        if self._upgrades:
            self.scope = {"method": "GET", "headers": self.headers}  # type: ignore[typeddict-item]
            return
        before = self.cycle
        head = self._head(self.parser.get_method().decode("ascii"))
        self.cycle = cycle = Cycle(head, self)
        if self.parser.get_http_version() == "1.0" or self._last_request or not self.parser.should_keep_alive():
            cycle.keep_alive = False
        if head.fields is not None and head.fields.get(b"expect", b"").lower() == b"100-continue":
            cycle.waiting_for_100_continue = True
        self._unused = False
        fresh, self._fresh = self._fresh, b""
        if fresh and self._misses < MOST_MISSES:
            self._misses += 1
            self._known = known(fresh, head, self.headers) if cycle.keep_alive and not self._offers else None
        if before is None or before.response_complete:
            self._next = cycle
            return
        self.flow.pause_reading()
        self.pipeline.appendleft((cycle, self.app))
        if len(self.pipeline) > self.bounds.limits.pipelined:
            raise _TooMuch

    def _head(self, method: str) -> Call:
        url = httptools.parse_url(self.url)
        path, query = url.path.decode("ascii"), (url.query or b"").decode("latin-1")
        return Call(method, path, {}, query, self.headers, fields=dict(reversed(self.headers)))

    def on_body(self, body: bytes) -> None:
        if not self._upgrades and not self.cycle.response_complete:
            cast(Cycle, self.cycle).grow(body)

    def on_message_complete(self) -> None:
        self._between = True
        if not self._offers and not self.cycle.response_complete:
            self._end(cast(Cycle, self.cycle))

    def _end(self, cycle: Cycle) -> None:
        """The body has come."""
        cycle.end()
        if cycle is self._next:
            if self._at_once and cycle.size <= _AT_ONCE_BYTES:
                self._at_once = False
                self._begin()
            else:
                self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Have the request answered whose turn it is."""
        cycle, self._next = self._next, None
        if cycle is not None:
            cycle.alone = self.bounds.alone(id(self))
            self._steps = steps = Steps(cycle.respond(cast(Application, self.app)), self.loop, self.tasks)
            steps.go_on()

    def shutdown(self) -> None:
        """End the connection, but not under a client whose first request is still on its way."""
        if self._unused:
            self._last_request = True
            self.loop.call_later(FIRST_REQUEST_SECONDS, self._close_unused)
        else:
            super().shutdown()

    def _close_unused(self) -> None:
        if self._unused:
            self.transport.close()

    def _grow(self, size: int) -> None:
        self._head_bytes += size
        if self._is_too_large():
            raise _TooMuch

    def _is_too_large(self) -> bool:
        limits = self.bounds.limits
        return self._head_bytes > limits.head_bytes or len(self.headers or ()) > limits.head_headers

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or is too much of it."""
        limits = self.bounds.limits
        if self._is_too_large():
            text = f"the request's head has more than {limits.head_bytes} bytes or {limits.head_headers} headers"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text, "head")
        elif len(self.pipeline) > limits.pipelined:
            text = f"more than {limits.pipelined} requests wait on this connection"
            self._refuse(HTTPStatus.BAD_REQUEST, text, "pipelined")
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, msg, "malformed")

    def _refuse(self, status: HTTPStatus, text: str, reason: str) -> None:
        """The request cannot be read, so nobody's dialect is known: plain JSON, and the connection is over."""
        self.bounds.refused[reason] += 1
        body = msgspec.json.encode({"error": text})
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            head += "retry-after: 1\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    # More connections than there may be...

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost with it: no request is on its way, as far as is known here."""
        if self._unused:
            timer, patience = self._head_timer, self.bounds.limits.head_seconds - _GREETING_SECONDS
            return not self._head_bytes and timer is not None and timer.when() - self.loop.time() < patience
        return not self._in_head and self.cycle is not None and self.cycle.response_complete

    def _make_room(self) -> bool:
        """Close one that is idle."""
        if not self.bounds.may_scan():
            return False
        for other in self.connections:
            if isinstance(other, Protocol) and other is not self and not other.transport.is_closing() and other.idle:
                self.bounds.refused["idle"] += 1
                other.transport.close()
                return True
        return False

    def on_response_complete(self) -> None:
        """Go on to the next request if it is here, or keep the connection as long as one may be idle just now."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self.flow.resume_reading()
            self._next, _ = self.pipeline.pop()  # type: ignore[assignment]
            self.loop.call_soon(self._begin)
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        # PERF: one timer for many requests; one for each, armed and cancelled, takes 1 us.
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None or self._idle_seconds != self.bounds.idle_seconds:
            self._unset_keepalive_if_required()
            self._idle_seconds = self.bounds.idle_seconds
            self._watch_idle(self._idle_seconds)

    def _watch_idle(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._look_at_idle)

    def _look_at_idle(self) -> None:
        """Close the connection if no request has begun for long enough; empty lines between them begin none."""
        self.timeout_keep_alive_task = None
        if self._in_head or self.transport.is_closing() or (self.cycle and not self.cycle.response_complete):
            return
        left = self._idle_since + self._idle_seconds - self.loop.time()
        if left > 0:
            self._watch_idle(left)
        else:
            self.transport.close()


def bounded(connections: Connections) -> type[Protocol]:
    """The protocol of a port whose connections share these bounds."""
    return type("BoundedProtocol", (Protocol,), {"bounds": connections})
