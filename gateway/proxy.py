"""Custom services: every call under the service's prefix or host goes to its own server, whatever protocol it is."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import msgspec
from msgspec import Struct

from gateway.body import Message, Receive
from gateway.bounds import Bounds
from gateway.config import LimitsConfig
from gateway.deadlines import in_time
from gateway.errors import (
    BodyTooLarge,
    CapacityError,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    ModelNotFound,
    ModelNotReady,
    RateLimited,
    RequestError,
    Unauthenticated,
)
from gateway.exchange import Exchange, Send, Upload
from gateway.forwarding import Headers, forwarded, hides_authorization
from gateway.gate import Who
from gateway.grants import INFER, Grant
from gateway.interfaces import Upstream
from gateway.paths import split_prefix
from gateway.plane import Plane
from gateway.pressure import Stage
from gateway.relay import Relay
from gateway.routing import Service
from gateway.trace import Trace
from gateway.types import Call, Target, trace_headers

PROTOCOL = "custom"

_PREFIXES = ("/services/", "/seldon/")

_STATUSES: tuple[tuple[type[GatewayError], int], ...] = (
    (Unauthenticated, 401),
    (Forbidden, 403),
    (ModelNotFound, 404),
    (BodyTooLarge, 413),
    (RequestError, 400),
    (DeadlineExceeded, 504),
    (RateLimited, 429),
    (CapacityError, 503),
    (GatewayError, 502),
)

Admitted = tuple[Upstream, float | None]
"""The server, and when the caller stops waiting."""

log = logging.getLogger("tensorgate.proxy")


class Passage(Struct, frozen=True):
    """A call for a custom service."""

    plane: Plane
    service: Service
    prefix: str
    """What was taken off the path; empty where the Host header named the service."""
    path: str
    """What the service's server is asked for, still percent-encoded."""


class Proxy:
    """Passes calls on to the servers of custom services."""

    def __init__(self, plane: Callable[[], Plane], limits: LimitsConfig, bounds: Bounds) -> None:
        self._plane = plane
        self._bounds = bounds
        self._limits = limits
        # NOTE: no client around it, which would keep cookies of all its callers, follow redirects and add headers.
        self._transport = httpx.AsyncHTTPTransport(
            trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=64)
        )

    def passage(self, head: Call) -> Passage | None:
        """Where the call goes, if it is for a custom service."""
        plane = self._plane()
        if not plane.directory.has_custom and not head.raw_path.startswith(_PREFIXES):
            return None
        name, path = split_prefix(head.raw_path)
        prefix = head.raw_path.removesuffix(path) if name is not None else ""
        if name is None and head.raw_path.startswith("/services/"):  # the prefix alone, without a slash behind it
            name, path = split_prefix(f"{head.raw_path}/")
            prefix = head.raw_path
        service = plane.directory.custom(head, name)
        return None if service is None else Passage(plane, service, prefix, path)

    async def answer(self, passage: Passage, head: Call, receive: Receive, send: Send, trace: Trace) -> None:
        """Pass an HTTP call on, and the answer back. Raises ClientGone, and what breaks an answer that has begun."""
        exchange = None
        try:
            async with self._admitted(passage, head, trace) as (upstream, deadline):
                upload = Upload(receive, head.headers, self._limits.body_bytes, trace)
                upload.check_length()
                framing = [one for one in upload.framing if one[0] == b"transfer-encoding"]
                request = httpx.Request(
                    head.method,
                    upstream.url,
                    headers=[*_told(passage, head, trace), *framing],
                    stream=upload,
                    extensions={"target": _target(upstream, passage, head)},
                )
                exchange = Exchange(upstream, request, upload, send, trace)
                run = exchange.run(self._transport)
                await (run if deadline is None else in_time(run, deadline))
        except GatewayError as error:
            if exchange is not None and exchange.begun:
                raise
            error = self._noted(error, trace)
            for message in _refusal(error, head, trace):
                await send(message)

    async def converse(self, passage: Passage, head: Call, receive: Receive, send: Send, trace: Trace) -> None:
        """Pass a websocket's messages on, in both directions, until one side ends it."""
        relay = None
        try:
            async with self._admitted(passage, head, trace) as (upstream, _):
                target = _target(upstream, passage, head).decode("latin-1")
                relay = Relay(upstream, target, _told(passage, head, trace), trace)
                await relay.run(receive, send)
        except GatewayError as error:
            if relay is not None and relay.begun:
                raise
            error = self._noted(error, trace)
            for message in _refusal(error, head, trace):
                await send({**message, "type": f"websocket.{message['type']}"})

    def _noted(self, error: GatewayError, trace: Trace) -> GatewayError:
        """The error that the caller is told."""
        if isinstance(error, Unauthenticated):
            error = self._bounds.limits.wrong_key(error, trace.peer)
        trace.status = _status(error)
        trace.failed = not isinstance(error, RequestError | RateLimited)
        return error

    async def close(self) -> None:
        """Close the connections that are kept open."""
        await self._transport.aclose()

    @contextlib.asynccontextmanager
    async def _admitted(self, passage: Passage, head: Call, trace: Trace) -> AsyncIterator[Admitted]:
        """The server to call, held meanwhile. Raises what keeps the call from it."""
        plane, service, limits = passage.plane, passage.service, self._bounds.limits
        trace.protocol, trace.service, trace.operation = PROTOCOL, service.name, "proxy"
        if self._bounds.pressure.stage is Stage.OUT:
            raise limits.no_memory()
        opened = await plane.auth.grant(head, [service], trace.peer, PROTOCOL, INFER)
        if plane.auth.verifies:  # NOTE: the body is not here to be verified, so only calls without one can be signed
            opened = plane.auth.verified(head, opened, b"")
        plane.auth.admit(head, opened, service)
        trace.key = opened.key
        plane.require_running(service)
        visit = limits.gate(service.name).enter(head, _Guest(passage, head, opened, trace))
        try:
            if visit.turn is not None:
                await visit.come_in()
            choice = plane.choose(service, Target(), head)
            loaded, trace.variant, trace.version = choice.loaded, choice.variant, choice.loaded.version
            upstream = loaded.metadata.extras.get("upstream")
            if upstream is None:
                text = f"the service {service.name} is a custom one, but its model is no server"
                raise ModelNotReady(text, service.name)
            loaded.acquire()
            try:
                yield upstream, visit.deadline
            finally:
                loaded.release()
        finally:
            visit.release()


class _Guest(Struct, frozen=True):
    """A call as the service's gate sees it."""

    passage: Passage
    head: Call
    opened: Grant
    trace: Trace

    def who(self) -> Who:
        """Whose budgets it uses."""
        return self.passage.plane.who(self.head, self.opened, self.trace.peer)

    def arrived(self) -> float:
        """When it came, on the monotonic clock."""
        return self.trace.arrived()


def _status(error: GatewayError) -> int:
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


def _refusal(error: GatewayError, head: Call, trace: Trace) -> Iterator[Message]:
    """What the gateway itself answers; the connection ends, for the call's body may still be on its way."""
    body = msgspec.json.encode({"error": str(error)})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", trace.id.encode("latin-1")),
        (b"connection", b"close"),
    ]
    if trace.variant:
        headers.append((b"x-tensorgate-variant", trace.variant.encode("ascii")))
    if isinstance(error, CapacityError) and error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    yield {"type": "http.response.start", "status": _status(error), "headers": headers}
    yield {"type": "http.response.body", "body": body}


def _told(passage: Passage, head: Call, trace: Trace) -> Headers:
    told = forwarded(
        head.headers,
        peer=trace.peer,
        prefix=passage.prefix,
        request_id=trace.id,
        hidden=hides_authorization(head.headers, passage.service.protected),
    )
    if not (own := trace_headers.get()):
        return told
    kept = [one for one in told if one[0] not in (b"traceparent", b"tracestate")]
    return [*kept, *((name.encode("ascii"), value.encode("latin-1")) for name, value in own)]


def _target(upstream: Upstream, passage: Passage, head: Call) -> bytes:
    """What the request line asks for, as the client wrote it."""
    query = f"?{head.query}" if head.query else ""
    return httpx.URL(upstream.url).raw_path.rstrip(b"/") + f"{passage.path}{query}".encode("latin-1")
