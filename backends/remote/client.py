"""One call to one of the servers: retries while nothing has come, timeouts, and an answer that is bounded."""

import asyncio
import random
import ssl
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from backends.remote.failures import Miss, bad_answer, broken_off, miss_of, refusal_of, retry_after, too_large, too_slow
from backends.remote.servers import Server, Servers
from backends.remote.settings import Config
from gateway.errors import DeadlineExceeded, GatewayError

_ERROR_BYTES = 64 << 10
_ID = "x-request-id"
_KEEP_SECONDS = 4.0
"""NOTE: servers in Python drop a connection that was idle for 5 s; whoever drops it first sees no reset."""


class Ask(Struct, frozen=True):
    """What is sent, whichever server gets it."""

    path: str
    """After the server's URL."""
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    deadline: float | None = None
    """The caller's, on the monotonic clock."""


class Client:
    """The connections to all servers."""

    def __init__(self, config: Config, key: str, context: ssl.SSLContext | bool) -> None:
        self._config = config
        self.servers = Servers(config.urls, config.eject_after, config.eject_seconds)
        self._key = (("authorization", f"Bearer {key}"),) if key else ()
        hosts = [part for url in config.urls for part in (url, urlsplit(url).netloc, urlsplit(url).hostname or "")]
        self.secrets: Sequence[str] = sorted({key, *hosts} - {""}, key=len, reverse=True)
        """What no message may show."""
        limits = httpx.Limits(max_connections=config.most_connections, keepalive_expiry=_KEEP_SECONDS)
        self._transport = httpx.AsyncHTTPTransport(verify=context, limits=limits, trust_env=False)

    @asynccontextmanager
    async def open(self, ask: Ask) -> AsyncIterator["Answer"]:
        """The answer, which has begun well; leaving closes it at once. Raises GatewayError."""
        end = monotonic() + self._config.total_seconds
        ends = end if ask.deadline is None else min(end, ask.deadline)
        server, response = await self._begin(ask, ends)
        try:
            yield Answer(response, self._config, ends)
        except (httpx.HTTPError, httpx.StreamError) as error:
            self.servers.failed(server)
            raise broken_off() from error
        finally:
            server.running -= 1
            await response.aclose()

    async def whole(self, ask: Ask) -> bytes:
        """The answer's body. Raises GatewayError."""
        async with self.open(ask) as answer:
            return await answer.whole()

    async def probe(self, path: str, most_status: int) -> bool:
        """Ask every server; whether one answers with at most that status."""
        return any(await asyncio.gather(*(self._probe(server, path, most_status) for server in self.servers.all)))

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def _probe(self, server: Server, path: str, most_status: int) -> bool:
        with suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(self._config.connect_seconds):
                response = await self._transport.handle_async_request(self._request(server, Ask(path)))
                await response.aclose()
            if response.status_code <= most_status:
                self.servers.answered(server)
                return True
        return False

    async def _begin(self, ask: Ask, ends: float) -> tuple[Server, httpx.Response]:
        tried: list[Server] = []
        for left in range(self._config.retries, -1, -1):
            server = self.servers.pick(tried)
            tried.append(server)
            server.running += 1
            try:
                response = await self._head(server, ask, ends)
            except Miss as miss:
                server.running -= 1
                if miss.blames:
                    self.servers.failed(server)
                wait = self._wait(miss, tried)
                if not left or not miss.again or wait > self._config.most_backoff_seconds or monotonic() + wait >= ends:
                    raise miss.error from miss.__cause__
                await asyncio.sleep(wait)
            except BaseException:
                server.running -= 1
                raise
            else:
                self.servers.answered(server)
                return server, response
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, miss: Miss, tried: Sequence[Server]) -> float:
        """Seconds until the next attempt; another server can be asked at once."""
        if self.servers.others(tried):
            return 0.0
        own = min(self._config.backoff_seconds * 2.0 ** (len(tried) - 1), self._config.most_backoff_seconds)
        return max(own * random.uniform(0.5, 1.0), miss.wait or 0.0)

    async def _head(self, server: Server, ask: Ask, ends: float) -> httpx.Response:
        """The answer, if its status is good. Raises Miss."""
        config = self._config
        head_ends = monotonic() + config.head_seconds
        request = self._request(server, ask)
        try:
            async with asyncio.timeout(max(0.0, min(head_ends, ends) - monotonic())):
                response = await self._transport.handle_async_request(request)
                if response.status_code == 200:
                    return response
                try:
                    body = await Answer(response, config, ends, _ERROR_BYTES).beginning()
                finally:
                    await response.aclose()
        except TimeoutError:
            late = too_slow("did not begin its answer")
            raise Miss(late, again=False, blames=head_ends <= ends) from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise (miss_of(error) if isinstance(error, httpx.HTTPError) else Miss(
                broken_off(), again=False, blames=True)) from error  # fmt: skip
        if response.status_code == 400 and not body and _ID in dict(ask.headers) and not server.wants_uuids:
            # NOTE: servers with starlette-context, such as llama-cpp-python's, refuse other ids without a word.
            server.wants_uuids = True
            return await self._head(server, ask, ends)
        raise self._refused(request, response, body)

    def _refused(self, request: httpx.Request, response: httpx.Response, body: bytes) -> Miss:
        status = response.status_code
        error = refusal_of(status, response.headers, body, self.secrets)
        again = status in self._config.retry_statuses
        miss = Miss(error, again=again, blames=status >= 500, wait=retry_after(response.headers))
        # For the log, where it is the gateway's own affair.
        miss.__cause__ = RuntimeError(f"{request.url} answered {status}: {body[:500]!r}")
        return miss

    def _request(self, server: Server, ask: Ask) -> httpx.Request:
        config = self._config
        wait = {"connect": config.connect_seconds, "pool": config.connect_seconds, "write": config.idle_seconds}
        headers = [("accept-encoding", "identity"), ("user-agent", "tensorgate"), *self._key, *_told(ask, server)]
        if ask.body is not None and not any(name == "content-type" for name, _ in headers):
            headers.append(("content-type", "application/json"))
        method = "GET" if ask.body is None else "POST"
        extensions: dict[str, Any] = {"timeout": wait | {"read": None}}
        return httpx.Request(method, server.url + ask.path, headers=headers, content=ask.body, extensions=extensions)


def _told(ask: Ask, server: Server) -> Iterable[tuple[str, str]]:
    """The headers; the id as a UUID of its own, the same for the same id, where the server takes no other."""
    if not server.wants_uuids:
        return ask.headers
    return [(name, str(uuid.uuid5(uuid.NAMESPACE_OID, value)) if name == _ID else value) for name, value in ask.headers]


class Answer:
    """A server's answer on its way. Reading raises GatewayError, or what httpx raises."""

    def __init__(self, response: httpx.Response, config: Config, ends: float, most: int = 0) -> None:
        self._response = response
        self._idle_seconds, self._most, self._ends = config.idle_seconds, most or config.answer_bytes, ends

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        return self._response.headers

    async def whole(self) -> bytes:
        """All of it."""
        async with aclosing(self._chunks()) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def beginning(self) -> bytes:
        """As much as is taken, or less if it breaks off."""
        found: list[bytes] = []
        with suppress(httpx.HTTPError, httpx.StreamError, GatewayError):
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    found.append(chunk)  # noqa: PERF401 - what came before it broke off is kept
        return b"".join(found)

    async def lines(self) -> AsyncGenerator[bytes]:
        """Line by line, without their ends."""
        rest = bytearray()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                rest += chunk
                if b"\n" in chunk:
                    *lines, last = bytes(rest).split(b"\n")
                    rest = bytearray(last)
                    for line in lines:
                        yield line.rstrip(b"\r")
        if rest:
            yield bytes(rest)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        if self._response.headers.get("content-encoding", "identity") != "identity":
            raise bad_answer("it is compressed, which was not asked for")
        count = 0
        iterator = self._response.aiter_raw()
        while chunk := await self._next(iterator):
            count += len(chunk)
            if count > self._most:
                raise too_large(self._most)
            yield chunk

    async def _next(self, iterator: AsyncIterator[bytes]) -> bytes:
        """The next piece; nothing at the end."""
        left = self._ends - monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(left, self._idle_seconds))):
                return await anext(iterator, b"")
        except TimeoutError:
            raise _late(left, self._idle_seconds) from None


def _late(left: float, idle_seconds: float) -> DeadlineExceeded:
    return too_slow("did not go on with its answer" if idle_seconds < left else "did not complete its answer")
