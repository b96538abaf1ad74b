"""Which headers a proxy passes on: all but those of one connection, and the gateway's own keys."""

from collections.abc import Iterable

from gateway.types import trace_headers

Headers = list[tuple[bytes, bytes]]

FORWARDS = "forwards"
"""Of a model's extras: the client's headers, in lower case, that its backend passes on to the server behind it."""

SESSION_COOKIE = b"tensorgate_session"
"""The console's. NOTE: a browser sends a cookie to every port of a host, and so to services' own servers, too."""

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te",
     b"trailer", b"transfer-encoding", b"upgrade", b"expect"}
)  # fmt: skip
"""RFC 9110, 7.6.1, the names that came before it, and an expectation that the gateway itself meets."""

_OURS = frozenset({b"x-tensorgate-key", b"x-tensorgate-service", b"x-request-id", b"canary"})
_TOLD = frozenset({b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-prefix", b"forwarded"})


def kept(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Those that are not of one connection, in their order; names are in lower case."""
    given = list(headers)
    named = {
        token.strip().lower() for name, value in given if name == b"connection" for token in value.split(b",") if token
    }
    return [(name, value) for name, value in given if name not in HOP_BY_HOP and name not in named]


def forwarded(headers: Headers, *, peer: str, prefix: str, request_id: str, hidden: bool) -> Headers:
    """What the server behind is told: the client's own headers, without a `hidden` Authorization, and who called.

    A session of the console is nobody's but the browser's and the console's.

    What a client says of forwarding is replaced: only the gateway knows where the call came from.
    """
    dropped = _OURS | _TOLD | ({b"authorization"} if hidden else frozenset())
    told = [
        (name, value if name != b"cookie" else _without_session(value))
        for name, value in kept(headers)
        if name not in dropped
    ]
    told = [one for one in told if one != (b"cookie", b"")]
    host = next((value for name, value in headers if name == b"host"), b"")
    told += [
        (b"x-forwarded-for", peer.encode("latin-1")),
        (b"x-forwarded-host", host),
        (b"x-forwarded-proto", b"http"),
        (b"x-request-id", request_id.encode("latin-1")),
    ]
    if prefix:
        told.append((b"x-forwarded-prefix", prefix.encode("latin-1")))
    return told


def _without_session(cookies: bytes) -> bytes:
    """A Cookie header's other cookies, as they came."""
    if SESSION_COOKIE not in cookies:
        return cookies
    return b";".join(one for one in cookies.split(b";") if one.partition(b"=")[0].strip() != SESSION_COOKIE).strip()


def told_to_backend(headers: Headers, names: Iterable[str], request_id: str) -> tuple[tuple[str, str], ...]:
    """What a backend that calls another server passes on: the headers that it asks for, and the request's id."""
    traced = trace_headers.get()
    wanted = {name.encode("latin-1") for name in names} - {name.encode("latin-1") for name, _ in traced}
    found = tuple((name.decode(), value.decode("latin-1")) for name, value in headers if name in wanted)
    return (*found, *traced, ("x-request-id", request_id))


def hides_authorization(headers: Headers, protected: bool) -> bool:
    """Whether the Authorization header is the gateway's affair: a key of its own, which the server need not see."""
    for name, value in headers:
        if name == b"authorization":
            scheme = value.partition(b" ")[0].lower()
            taken = any(name == b"x-tensorgate-key" for name, _ in headers)
            return scheme == b"appcode" or (protected and scheme == b"bearer" and not taken)
    return False
