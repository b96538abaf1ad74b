"""A request and its response as the application sees them, and as ASGI has them."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from gateway.body import Message, Receive
from gateway.types import Call

Scope = Message
Send = Callable[[Message], Awaitable[None]]


class Exchange(Protocol):
    """One request, and the way to answer it."""

    @property
    def head(self) -> Call:
        """The request without its body."""

    @property
    def peer(self) -> str:
        """The client's address; empty where it has none."""

    @property
    def alone(self) -> bool:
        """Whether the client has been the only one for a while."""

    @property
    def scope(self) -> Scope:
        """ASGI's."""

    @property
    def receive(self) -> Receive:
        """ASGI's."""

    @property
    def send(self) -> Send:
        """ASGI's."""

    def arrived(self) -> bytes | None:
        """The body, if all of it is here, and nobody has taken it."""

    async def finish(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole response, whose headers tell its length."""


class Asgi:
    """What a server of ASGI offers."""

    alone = False

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        self.head = Call(scope.get("method", ""), path, {}, query, scope["headers"])
        self.peer: str = scope["client"][0] if scope["client"] else ""

    def arrived(self) -> bytes | None:
        """Nothing is known of it yet."""
        return None

    async def finish(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole response."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
