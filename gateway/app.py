"""The ASGI application: the operators' own pages, and everything else to the pipeline."""

import asyncio
from collections.abc import AsyncIterator, Container

import msgspec
from msgspec.structs import replace
from sse_starlette import ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.accesslog import AccessLog
from gateway.asgi import Asgi, Exchange, Scope, Send
from gateway.bodies import Bodies
from gateway.body import Body, ClientGone, Message, Receive
from gateway.config import LimitsConfig
from gateway.conversation import Conversation
from gateway.errors import RateLimited
from gateway.grants import DESCRIBE, NOTHING
from gateway.interfaces import WEBSOCKET
from gateway.models import Models
from gateway.observe import Observer
from gateway.pages import TYPES, Alone, Unreachable, Whole
from gateway.paths import PAGES
from gateway.pipeline import Pipeline
from gateway.proxy import Proxy
from gateway.races import until_one_ends
from gateway.stages import ASKS, server_timing
from gateway.steps import in_task
from gateway.streaming import closing
from gateway.trace import RequestIds, Trace, given_id
from gateway.types import Call, Reply

PING_SECONDS = 15.0
"""Silence in a stream of events after which proxies and clients are told that it still lives."""
_PING = ServerSentEvent(comment="ping", sep="\n").encode()

_LINGER_SECONDS = 2.0
_LINGER_BYTES = 256 << 20


class Gateway:
    """One port's application."""

    def __init__(
        self,
        pipeline: Pipeline,
        proxy: Proxy,
        models: Models,
        observer: Observer,
        limits: LimitsConfig,
        log: AccessLog | None,
        bodies: Bodies | None = None,
        pages: Container[str] = PAGES,
    ) -> None:
        self._pipeline = pipeline
        self._proxy = proxy
        self._observer = observer
        self._limits = limits
        self._bodies = bodies or Bodies(limits)
        self._log = log
        self._ids = RequestIds()
        self.fleet: Whole = Alone(models, observer, lambda: self.draining)
        """Whom the operators' pages are about."""
        # The hot path never enters Starlette's router: its own pages are told apart by one set lookup.
        answers = zip(PAGES, (self._healthz, self._readyz, self._metrics, self._statusz), strict=True)
        shown = {path: page for path, page in answers if path in pages}
        self._pages = Starlette(routes=[Route(path, page) for path, page in shown.items()])
        self._page_paths = frozenset(shown)

    @property
    def draining(self) -> bool:
        """Whether the process is leaving: every response then asks the client to close its connection."""
        return self._pipeline.draining

    async def respond(self, exchange: Exchange) -> None:
        """Answer one request."""
        if exchange.head.raw_path in self._page_paths:
            await in_task()
            await self._pages(exchange.scope, exchange.receive, exchange.send)
        else:
            await self._answer(exchange)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] == "websocket":
            await self._converse(scope, receive, send)
        else:
            await self.respond(Asgi(scope, receive, send))

    def converses(self, head: Call) -> bool:
        """Whether an offer to speak websocket is taken there; elsewhere the call is answered as if it had none."""
        head = replace(head, method=WEBSOCKET)
        return self._proxy.passage(head) is not None or self._pipeline.paths.has(head)

    async def _converse(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Asgi(scope, receive, send)
        head, peer = replace(exchange.head, method=WEBSOCKET), exchange.peer
        trace = self._begin(head, peer)
        try:
            if (passage := self._proxy.passage(head)) is not None:
                await self._proxy.converse(passage, head, receive, send, trace)
                return
            await receive()
            refusal = await self._pipeline.knock(head, trace)
            if refusal is not None:
                await self._deny(refusal, trace, send)
                return
            trace.status = 101
            await send({"type": "websocket.accept"})
            conversation = Conversation(self._pipeline, head, self._limits, self._bodies, receive, send)
            await conversation.run(lambda: self._begin(head, peer), self._recorded, self._over)
        finally:
            self._over(trace)

    async def _deny(self, reply: Reply, trace: Trace, send: Send) -> None:
        """Answer in HTTP instead of opening a websocket."""
        assert isinstance(reply.body, bytes)
        trace.status = reply.status
        headers = [*self._headers(reply, trace), (b"content-length", b"%d" % len(reply.body))]
        await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": reply.body})

    async def _answer(self, exchange: Exchange) -> None:
        head = exchange.head
        trace = self._begin(head, exchange.peer)
        trace.alone = exchange.alone
        body = Body(exchange.receive, self._limits, self._bodies, exchange.arrived)
        try:
            passage = self._proxy.passage(head)
            if passage is not None:
                await in_task()
                await self._proxy.answer(passage, head, exchange.receive, exchange.send, trace)
                return
            reply = await self._reply(head, body, trace)
            trace.status = reply.status
            reply = self._recorded(head, body.sent, reply, trace)
            if isinstance(reply.body, bytes):
                trace.bytes_out = len(reply.body)
                await self._send(reply, reply.body, trace, body, exchange)
            else:
                await in_task()
                await self._stream(reply, reply.body, trace, exchange.receive, exchange.send)
        except ClientGone:
            pass
        finally:
            body.close()
            trace.bytes_in = trace.bytes_in or body.size
            self._over(trace)

    async def _reply(self, head: Call, body: Body, trace: Trace) -> Reply:
        """The pipeline's answer; to whom the gateway cannot wait for when it leaves, that it leaves."""
        try:
            return await self._pipeline.answer(head, body, trace)
        except asyncio.CancelledError:
            if not self.draining:
                raise
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            return self._pipeline.leave(head, trace)

    def _begin(self, head: Call, peer: str) -> Trace:
        """A request comes in."""
        self._observer.in_flight += 1
        trace = Trace(given_id(head) or self._ids(), peer, head.method, head.raw_path)
        trace.timed = head.header(ASKS) == "1"
        if self._observer.recorders is not None:
            self._observer.recorders.begin(head, trace)
        return trace

    def _recorded(self, head: Call, sent: bytes, reply: Reply, trace: Trace) -> Reply:
        """The reply, noted down if it is one of those that are."""
        recorders = self._observer.recorders
        return reply if recorders is None else recorders.answered(head, sent, reply, trace)

    def _over(self, trace: Trace) -> None:
        """Count a request, and note it in the log."""
        self._observer.in_flight -= 1
        self._observer.record(trace)
        if self._log is not None:
            self._log.add(trace)

    def _headers(self, reply: Reply, trace: Trace, closes: bool = False) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"content-type", reply.media_type.encode("latin-1")),
            (b"x-request-id", trace.id.encode("latin-1")),
        ]
        if trace.variant:
            headers.append((b"x-tensorgate-variant", trace.variant.encode("ascii")))
        if trace.timed:
            headers.append((b"server-timing", server_timing(trace).encode("ascii")))
            if trace.version:
                headers.append((b"x-tensorgate-version", b"%d" % trace.version))
        for name, value in reply.headers:
            headers.append((name.encode("latin-1"), value.encode("latin-1")))
        if self.draining or closes:
            headers.append((b"connection", b"close"))
        return headers

    async def _send(self, reply: Reply, content: bytes, trace: Trace, body: Body, exchange: Exchange) -> None:
        unread = not body.complete and body.unread(exchange.head)
        headers = self._headers(reply, trace, closes=unread)
        headers.append((b"content-length", b"%d" % len(content)))
        if not unread:
            await exchange.finish(reply.status, headers, content)
            return
        # The client may still be sending. Closing now would reset the connection under it before it has read the
        # answer, so what it sends is dropped for a while first.
        await in_task()
        await exchange.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await exchange.send({"type": "http.response.body", "body": content, "more_body": True})
        await body.discard(_LINGER_SECONDS, _LINGER_BYTES)
        await exchange.send({"type": "http.response.body", "body": b""})

    async def _stream(
        self, reply: Reply, chunks: AsyncIterator[bytes], trace: Trace, receive: Receive, send: Send
    ) -> None:
        """Send the chunks as they come until the client leaves, and close what they come from."""
        start = {"type": "http.response.start", "status": reply.status, "headers": self._headers(reply, trace)}
        sending = asyncio.ensure_future(_Stream(reply, trace, send).pump(start, chunks))
        leaving = asyncio.ensure_future(_gone(receive))
        async with closing(chunks):
            await until_one_ends(sending, leaving)
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    async def _healthz(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        return await self._page(request, await self._trusts(request))

    async def _metrics(self, request: Request) -> Response:
        return await self._page(request, True) if await self._trusts(request) else _stranger()

    async def _statusz(self, request: Request) -> Response:
        return await self._page(request, True) if await self._trusts(request) else _stranger()

    async def _page(self, request: Request, trusted: bool) -> Response:
        path = request.url.path
        try:
            status, text = await self.fleet.page(path, trusted)
        except Unreachable:
            status, text = 503, "draining\n"
        return Response(text, status, {"content-type": TYPES[path]})

    async def _trusts(self, request: Request) -> bool:
        """Whether the caller may see names: they are told to strangers only where no service needs a key."""
        plane = self._pipeline.plane
        peer = request.client.host if request.client else ""
        if plane.trusts(NOTHING, peer):
            return True
        head = Call("GET", request.url.path, headers=request.scope["headers"])
        try:
            opened = await plane.auth.grant(head, list(plane.directory), peer, "", DESCRIBE)
        except RateLimited:
            return False
        return plane.trusts(opened, peer)


def _stranger() -> Response:
    text = {"error": "services here need keys, and so does this page: send the header 'Authorization: Bearer <key>'"}
    return Response(msgspec.json.encode(text), 401, {"www-authenticate": "Bearer"}, "application/json")


class _Stream:
    """A streamed body on its way; where nothing is said for long, server-sent events carry a comment."""

    def __init__(self, reply: Reply, trace: Trace, send: Send) -> None:
        self._pings = reply.media_type.startswith("text/event-stream")
        self._trace = trace
        self._send = send
        self._clock = asyncio.get_running_loop().time
        self._said = self._clock()

    async def pump(self, start: Message, chunks: AsyncIterator[bytes]) -> None:
        """Send all of it; each chunk of server-sent events is whole ones."""
        await self._send(start)
        pinging = asyncio.ensure_future(self._ping()) if self._pings else None
        try:
            async for chunk in chunks:
                await self._say(chunk)
        finally:
            if pinging is not None:
                pinging.cancel()
                await asyncio.gather(pinging, return_exceptions=True)
        await self._send({"type": "http.response.body", "body": b""})

    async def _say(self, chunk: bytes) -> None:
        self._said = self._clock()
        self._trace.bytes_out += len(chunk)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _ping(self) -> None:
        # PERF: one task a stream that mostly sleeps, not a timer a chunk.
        while True:
            silence = self._clock() - self._said
            if silence >= PING_SECONDS:
                await self._say(_PING)
            else:
                await asyncio.sleep(PING_SECONDS - silence)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
