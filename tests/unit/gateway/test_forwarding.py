"""Which headers a proxy passes on."""

import contextvars

import pytest

from gateway.forwarding import Headers, forwarded, hides_authorization, kept, told_to_backend
from gateway.types import trace_headers


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        ([(b"a", b"1"), (b"connection", b"keep-alive, X-B , "), (b"x-b", b"2"), (b"keep-alive", b"5")], [b"a"]),
        ([(b"te", b"trailers"), (b"trailer", b"x"), (b"upgrade", b"h2c"), (b"expect", b"100-continue")], []),
        ([(b"transfer-encoding", b"chunked"), (b"content-length", b"3")], [b"content-length"]),
        ([(b"set-cookie", b"a"), (b"set-cookie", b"b")], [b"set-cookie", b"set-cookie"]),
        ([(b"connection", b"close"), (b"connection", b"x-a"), (b"x-a", b"1")], []),
    ],
)
def test_headers_of_one_connection_stay(headers: Headers, left: list[bytes]) -> None:
    """Hop-by-hop headers, and those that Connection names, are not passed on; others are, in their order."""
    assert left == [name for name, _ in kept(headers)]


def test_what_a_client_says_of_forwarding_is_replaced() -> None:
    """Only the gateway knows who called; its own headers are not the server's affair."""
    given = [
        (b"host", b"a.example"),
        (b"x-forwarded-for", b"6.6.6.6"),
        (b"forwarded", b"for=6.6.6.6"),
        (b"x-tensorgate-key", b"secret"),
        (b"authorization", b"APPCODE secret"),
        (b"accept", b"*/*"),
    ]
    told = forwarded(given, peer="10.0.0.1", prefix="/services/a", request_id="r-1", hidden=True)
    assert told == [
        (b"host", b"a.example"),
        (b"accept", b"*/*"),
        (b"x-forwarded-for", b"10.0.0.1"),
        (b"x-forwarded-host", b"a.example"),
        (b"x-forwarded-proto", b"http"),
        (b"x-request-id", b"r-1"),
        (b"x-forwarded-prefix", b"/services/a"),
    ]


@pytest.mark.parametrize(
    ("cookies", "left"),
    [
        (b"tensorgate_session=s", []),
        (b"a=1; tensorgate_session=s; b=2", [b"a=1; b=2"]),
        (b"a=1;tensorgate_session = s", [b"a=1"]),
        (b"tensorgate_session_2=x;  c=tensorgate_session=", [b"tensorgate_session_2=x;  c=tensorgate_session="]),
    ],
)
def test_no_server_is_told_a_session_of_the_console(cookies: bytes, left: list[bytes]) -> None:
    """A browser sends the cookie to every port of a host; whoever made a service could act as whoever visits it."""
    told = forwarded([(b"cookie", cookies)], peer="10.0.0.1", prefix="", request_id="r-1", hidden=False)
    assert left == [value for name, value in told if name == b"cookie"]


@pytest.mark.parametrize(
    ("authorization", "own_key", "protected", "hidden"),
    [
        (b"APPCODE x", False, False, True),
        (b"Bearer x", False, True, True),
        (b"Bearer x", True, True, False),
        (b"Bearer x", False, False, False),
        (b"Basic eDp5", False, True, False),
        (None, False, True, False),
    ],
)
def test_whose_affair_the_authorization_is(
    authorization: bytes | None, own_key: bool, protected: bool, hidden: bool
) -> None:
    """The gateway's keys stay with it; the server's own reach the server."""
    headers = [(b"authorization", authorization)] if authorization is not None else []
    headers += [(b"x-tensorgate-key", b"k")] if own_key else []
    assert hidden == hides_authorization(headers, protected)


def test_what_a_backend_is_told() -> None:
    """It gets the headers that it asks for and the request's id; of two traces the gateway's own."""
    headers = [(b"traceparent", b"theirs"), (b"x-tenant", b"t"), (b"cookie", b"c")]
    names = ("traceparent", "x-tenant")
    assert told_to_backend(headers, names, "r1") == (
        ("traceparent", "theirs"),
        ("x-tenant", "t"),
        ("x-request-id", "r1"),
    )

    def traced() -> tuple[tuple[str, str], ...]:
        trace_headers.set((("traceparent", "ours"),))
        return told_to_backend(headers, names, "r1")

    told = contextvars.copy_context().run(traced)
    assert told == (("x-tenant", "t"), ("traceparent", "ours"), ("x-request-id", "r1"))
