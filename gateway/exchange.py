"""One HTTP call passed on to another server, and its answer passed back, byte for byte as both come.

A client or a server that reads slowly slows the other down; a client that leaves ends the call on both sides.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx

from gateway.body import ClientGone, Message, Receive
from gateway.errors import BodyTooLarge, DeadlineExceeded, GatewayError, InferenceFailed, ModelNotReady
from gateway.forwarding import Headers, kept
from gateway.interfaces import Upstream
from gateway.races import until_one_ends
from gateway.trace import Trace

REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Asked once more if the server had just closed the connection that was kept open for the next call."""

_FRAMING = (b"content-length", b"transfer-encoding")

Send = Callable[[Message], Awaitable[None]]


class Upload(httpx.AsyncByteStream):
    """A call's body on its way through."""

    def __init__(self, receive: Receive, headers: Headers, most: int, trace: Trace) -> None:
        self._receive = receive
        self._most = most
        self._trace = trace
        self._finished = asyncio.Event()
        self.framing = [(name, value) for name, value in headers if name in _FRAMING]
        """The headers that say how long it is; empty where there is no body."""

    def check_length(self) -> None:
        """Raise BodyTooLarge for a declared length over the limit, before anything is read."""
        for name, value in self.framing:
            if name == b"content-length" and int(value) > self._most:
                raise self._too_large()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = bool(self.framing)
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            self._trace.bytes_in += len(chunk)
            if self._trace.bytes_in > self._most:
                raise self._too_large()
            more = message.get("more_body", False)
            if chunk:
                yield chunk
        self._finished.set()

    async def client_leaves(self) -> None:
        """Return once the client has gone; until its body is read, the reading tells of that."""
        await self._finished.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is larger than the limit of {self._most} bytes")


class Exchange:
    """A call and its answer."""

    def __init__(self, upstream: Upstream, request: httpx.Request, upload: Upload, send: Send, trace: Trace) -> None:
        self._request = request
        self._upload = upload
        self._send = send
        self._trace = trace
        self.begun = False
        """Whether the answer's head has been sent, so that nothing else can be answered."""
        wait = {"connect": upstream.connect_seconds, "pool": upstream.connect_seconds}
        request.extensions["timeout"] = wait | {"read": upstream.idle_seconds, "write": upstream.idle_seconds}

    async def run(self, transport: httpx.AsyncBaseTransport) -> None:
        """Until the answer is sent, or one side has gone. Raises GatewayError or ClientGone."""
        passing = asyncio.ensure_future(self._pass_on(transport))
        leaving = asyncio.ensure_future(self._upload.client_leaves())
        await until_one_ends(passing, leaving)
        if passing.cancelled():
            raise ClientGone
        passing.result()

    async def _pass_on(self, transport: httpx.AsyncBaseTransport) -> None:
        try:
            response = await self._ask(transport)
        except httpx.HTTPError as error:
            raise _failure(error) from error
        try:
            await self._answer(response)
        finally:
            await response.aclose()

    async def _ask(self, transport: httpx.AsyncBaseTransport) -> httpx.Response:
        try:
            return await transport.handle_async_request(self._request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if self._request.method not in REPEATABLE or self._upload.framing:
                raise
        return await transport.handle_async_request(self._request)

    async def _answer(self, response: httpx.Response) -> None:
        self._trace.status = response.status_code
        self._trace.failed = response.status_code >= 500
        # NOTE: the server below the gateway dates every answer itself
        headers = [
            one for one in kept((name.lower(), value) for name, value in response.headers.raw) if one[0] != b"date"
        ]
        headers.append((b"x-request-id", self._trace.id.encode("latin-1")))
        if self._trace.variant:
            headers.append((b"x-tensorgate-variant", self._trace.variant.encode("ascii")))
        self.begun = True
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for chunk in response.stream:
            self._trace.bytes_out += len(chunk)
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})


def _failure(error: httpx.HTTPError) -> GatewayError:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return ModelNotReady("the service's server does not take connections just now", retry_after=1.0)
    if isinstance(error, httpx.TimeoutException):
        return DeadlineExceeded("the service's server has not answered in time")
    return InferenceFailed("the service's server broke off, or its answer is not HTTP")
