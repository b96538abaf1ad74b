"""A websocket passed on to another server: messages, and how it ends, in both directions."""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gateway.body import Message, Receive
from gateway.errors import InferenceFailed, ModelNotReady
from gateway.forwarding import Headers, kept
from gateway.interfaces import Upstream
from gateway.races import until_one_ends
from gateway.trace import Trace

MESSAGE_BYTES = 16 << 20
"""The longest message that is taken, from either side."""
WAITING_MESSAGES = 16
"""From the server, before it is made to wait for the client."""

_NO_STATUS, _ABNORMAL, _GOING_AWAY = 1005, 1006, 1001
_SPOKEN = b"sec-websocket-"

Send = Callable[[Message], Awaitable[None]]


class Relay:
    """One websocket."""

    def __init__(self, upstream: Upstream, target: str, headers: Headers, trace: Trace) -> None:
        self._upstream = upstream
        self._target = target
        self._headers = headers
        self._trace = trace
        self.begun = False
        """Whether the client's side is open, so that it can only be closed."""

    async def run(self, receive: Receive, send: Send) -> None:
        """Until one side has closed it. Raises GatewayError where it cannot be opened."""
        assert (await receive())["type"] == "websocket.connect"
        try:
            server = await self._connect()
        except InvalidStatus as refused:
            await self._pass_refusal(refused, send)
            return
        except (OSError, TimeoutError) as error:
            raise ModelNotReady("the service's server does not take connections just now") from error
        except InvalidHandshake as error:
            raise InferenceFailed("the service's server does not speak websocket here") from error
        try:
            await send({"type": "websocket.accept", "subprotocol": server.subprotocol})
            self.begun, self._trace.status = True, 101
            await self._pass_messages(server, receive, send)
        finally:
            await server.close()

    async def _connect(self) -> ClientConnection:
        parts = urlsplit(self._upstream.url)
        secure = parts.scheme == "https"
        host = next((value.decode("latin-1") for name, value in self._headers if name == b"host"), parts.netloc)
        offered = [
            token.strip()
            for name, value in self._headers
            if name == b"sec-websocket-protocol"
            for token in value.decode("latin-1").split(",")
        ]
        own = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._headers
            if name != b"host" and not name.startswith(_SPOKEN)
        ]
        return await connect(
            f"{'wss' if secure else 'ws'}://{host}{self._target}",
            host=parts.hostname,
            port=parts.port or (443 if secure else 80),
            additional_headers=own,
            subprotocols=offered or None,  # type: ignore[arg-type]
            compression=None,
            user_agent_header=None,
            proxy=None,
            open_timeout=self._upstream.connect_seconds,
            ping_interval=None,  # a silent websocket is the two sides' affair; the client's is kept alive by its server
            close_timeout=1.0,
            max_size=MESSAGE_BYTES,
            max_queue=WAITING_MESSAGES,
        )

    async def _pass_refusal(self, refused: InvalidStatus, send: Send) -> None:
        """The server's own answer, as it would have been without the gateway."""
        response = refused.response
        self._trace.status = response.status_code
        headers = kept(
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()
        )
        await send({"type": "websocket.http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": bytes(response.body or b"")})

    async def _pass_messages(self, server: ClientConnection, receive: Receive, send: Send) -> None:
        ended = await until_one_ends(
            asyncio.ensure_future(self._to_server(server, receive)),
            asyncio.ensure_future(self._to_client(server, send)),
        )
        for way in ended:
            way.result()

    async def _to_server(self, server: ClientConnection, receive: Receive) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            content: str | bytes = message["bytes"] if message.get("text") is None else message["text"]
            self._trace.bytes_in += len(content)
            try:
                await server.send(content)
            except ConnectionClosed:
                await asyncio.Event().wait()  # the other way tells the client how it ended
        code = message.get("code", _NO_STATUS)
        await server.close(_GOING_AWAY if code in (_NO_STATUS, _ABNORMAL) else code, message.get("reason") or "")

    async def _to_client(self, server: ClientConnection, send: Send) -> None:
        try:
            while True:
                content = await server.recv()
                self._trace.bytes_out += len(content)
                kind = "text" if isinstance(content, str) else "bytes"
                await send({"type": "websocket.send", kind: content})
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd is not None else 1011
            reason = closed.rcvd.reason if closed.rcvd is not None else "the service's server is gone"
            await send({"type": "websocket.close", "code": 1000 if code == _NO_STATUS else code, "reason": reason})
