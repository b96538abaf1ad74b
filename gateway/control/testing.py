"""The online test's way in: a signed-in user's call of a service, passed on to the port that all its callers use.

`/control/v1/services/NAME/test/REST` is asked for as `/services/NAME/REST`, with a pass in place of a key; HTTP of
any method, streams in both directions, and websockets. What comes back is data of a page's own origin, whoever made
it, so it may do nothing there: it is answered with headers that keep a browser from running it.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

import httpx
from msgspec import Struct

from gateway.body import ClientGone, Message, Receive
from gateway.control.accounts import User
from gateway.control.errors import NotFound, TooLarge, Unreachable
from gateway.control.permissions import require
from gateway.control.plane import Control
from gateway.errors import BodyTooLarge, GatewayError
from gateway.exchange import Exchange, Upload
from gateway.forwarding import Headers, kept
from gateway.interfaces import Upstream
from gateway.passes import Entrance
from gateway.relay import Relay
from gateway.trace import Trace

Send = Callable[[Message], Awaitable[None]]

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 3600.0
"""The services have deadlines of their own."""

HEAD_PARTS = 6
"""Of the raw path: the empty one, control, v1, services, the name, test."""

_DROPPED = frozenset(
    {b"host", b"cookie", b"authorization", b"x-tensorgate-key", b"x-tensorgate-service", b"origin", b"referer",
     b"x-csrf-token", b"x-request-id", b"forwarded", b"x-amz-date", b"x-amz-security-token"}
)  # fmt: skip
"""Of the call: what is the console's own affair, or would name another caller."""
_DROPPED_PREFIXES = (b"x-forwarded-", b"sec-fetch-", b"sec-ch-")

_TOLD = frozenset(
    {b"content-type", b"content-length", b"content-encoding", b"retry-after", b"allow", b"server-timing",
     b"cache-control", b"inference-header-content-length"}
)  # fmt: skip
"""Of the answer: no cookies, redirects, challenges or policies."""
_TOLD_PREFIXES = (b"x-tensorgate-", b"x-amzn-", b"x-amz-", b"x-ratelimit-", b"openai-", b"x-request-id")

INERT: Headers = [
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class Visit(Struct, frozen=True):
    """A call of a service."""

    name: str
    user: User
    target: bytes
    """What the data port is asked for."""
    headers: Headers
    entrance: Entrance

    @property
    def upstream(self) -> Upstream:
        """The data port."""
        return Upstream(self.entrance.url, CONNECT_SECONDS, IDLE_SECONDS)


class Testing:
    """Passes calls on, and answers back."""

    __test__ = False  # for pytest, which else takes the name for a test's

    def __init__(self, control: Control) -> None:
        self._control = control
        # NOTE: no connection is kept: one that the port had just closed would fail a call that cannot be repeated.
        self._transport = httpx.AsyncHTTPTransport(
            trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0)
        )

    async def pass_on(self, user: User, name: str, scope: Mapping[str, object], receive: Receive, send: Send) -> None:
        """One call, of whichever kind. Raises ControlError where nothing has been answered yet."""
        visit = self._visit(user, name, scope)
        trace = Trace(secrets.token_hex(8))
        run = self._converse if scope["type"] == "websocket" else self._exchange
        began = False

        async def inert(message: Message) -> None:
            nonlocal began
            began = True
            if message["type"].endswith("response.start"):
                message = {**message, "headers": _told(message["headers"])}
            await send(message)

        try:
            await run(visit, str(scope.get("method", "GET")), receive, inert, trace)
        except ClientGone:
            return
        except BodyTooLarge as error:
            raise TooLarge(str(error)) from None
        except GatewayError as error:
            if began:
                raise
            raise Unreachable("the service's port does not answer just now; try again in a moment") from error

    def _visit(self, user: User, name: str, scope: Mapping[str, object]) -> Visit:
        """Raises NotFound or NotAllowed."""
        control = self._control
        require(user, "use", name, control.service(name), control.config.gateway.sharing)
        assert control.fleet is not None
        entrance = control.fleet.entrance()
        raw_path, query = scope["raw_path"], scope["query_string"]
        assert isinstance(raw_path, bytes)
        assert isinstance(query, bytes)
        parts = raw_path.split(b"/", HEAD_PARTS)
        if len(parts) <= HEAD_PARTS:
            raise NotFound("what the service is to be asked for follows the path: .../test/v1/models:predict")
        target = b"/services/" + quote(name, safe="").encode("ascii") + b"/" + parts[-1]
        headers = scope["headers"]
        assert isinstance(headers, list)
        if scope["type"] == "websocket":
            query, wished = _wish(query)
            headers = [*headers, *wished]
        told = [one for one in kept(headers) if one[0] not in _DROPPED and not one[0].startswith(_DROPPED_PREFIXES)]
        told += [one for one in headers if one[0] == b"transfer-encoding"]
        told.append((b"x-tensorgate-key", entrance.passes.issue(name, f"test:{user.name}").encode("ascii")))
        told.append((b"host", entrance.url.removeprefix("http://").encode("ascii")))
        return Visit(name, user, target + (b"?" + query if query else b""), told, entrance)

    async def _exchange(self, visit: Visit, method: str, receive: Receive, send: Send, trace: Trace) -> None:
        upload = Upload(receive, visit.headers, self._control.config.limits.body_bytes, trace)
        upload.check_length()
        request = httpx.Request(
            method, visit.upstream.url, headers=visit.headers, stream=upload, extensions={"target": visit.target}
        )
        await Exchange(visit.upstream, request, upload, send, trace).run(self._transport)

    async def _converse(self, visit: Visit, method: str, receive: Receive, send: Send, trace: Trace) -> None:
        await Relay(visit.upstream, visit.target.decode("latin-1"), visit.headers, trace).run(receive, send)


def _told(headers: Headers) -> Headers:
    """Those that say something of the answer, each once, and those that make it harmless."""
    told: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _TOLD or name.startswith(_TOLD_PREFIXES):
            told.setdefault(name, value)
    return [*told.items(), *INERT]


def _wish(query: bytes) -> tuple[bytes, Headers]:
    """What a query asks for beside the variant, and that as the header which a page's websockets cannot have."""
    parts = query.split(b"&")
    wished = [one for one in (b"Always", b"Never") if b"canary=" + one in parts]
    return b"&".join(one for one in parts if not one.startswith(b"canary=")), [(b"canary", one) for one in wished]
