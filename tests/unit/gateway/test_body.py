"""Reading a body within limits."""

import asyncio
import gzip
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.body import Body, ClientGone, inflate
from gateway.config import LimitsConfig
from gateway.errors import BodyTimeout, BodyTooLarge, MalformedBody, UnsupportedMedia
from gateway.types import Call

LIMITS = LimitsConfig(body_bytes=1000, body_chunks=10, body_seconds=0.05)


def feed(*chunks: bytes, ends: bool = True) -> Callable[[], Awaitable[dict[str, Any]]]:
    """An ASGI receive that gives the chunks, then hangs or says that the client left."""
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if ends and messages:
        messages[-1]["more_body"] = False

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    return receive


def read(body: Body, *headers: tuple[bytes, bytes], lenient: bool = False) -> bytes:
    """What a whole read gives."""
    return asyncio.run(body.read(Call("POST", "/", headers=list(headers)), ignores_unknown_codings=lenient))


def test_chunks_are_joined_and_counted() -> None:
    """The body is what came, in order."""
    body = Body(feed(b"ab", b"", b"c"), LIMITS)
    assert read(body) == b"abc"
    assert body.size == 3
    assert body.complete


def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    """Nothing is received for a body that says it is too large."""
    body = Body(feed(), LIMITS)
    with pytest.raises(BodyTooLarge, match="1000 bytes"):
        body.check_length(Call("POST", "/", headers=[(b"content-length", b"1001")]))
    body.check_length(Call("POST", "/", headers=[(b"content-length", b"1000")]))


@pytest.mark.parametrize("chunks", [[b"x" * 1001], [b"x" * 600, b"x" * 600]])
def test_a_body_that_grows_over_the_limit_is_refused(chunks: list[bytes]) -> None:
    """An undeclared length is counted while it comes."""
    body = Body(feed(*chunks), LIMITS)
    with pytest.raises(BodyTooLarge):
        read(body)
    assert not body.complete


def test_too_many_chunks_are_refused() -> None:
    """A flood of tiny chunks ends at the chunk limit."""
    with pytest.raises(BodyTooLarge, match="10 chunks"):
        read(Body(feed(*[b"x"] * 20), LIMITS))


@pytest.mark.parametrize("chunks", [[], [b"x"]])
def test_a_body_that_stalls_is_given_up(chunks: list[bytes]) -> None:
    """Before the first byte as well as later."""
    with pytest.raises(BodyTimeout, match=r"0\.05 seconds"):
        read(Body(feed(*chunks, ends=False), LIMITS))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], False),
        ([(b"content-length", b"0")], False),
        ([(b"content-length", b"1000")], False),
        ([(b"content-length", b"1001")], True),
        ([(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_a_connection_outlives_a_refusal_where_little_is_left_to_read(
    headers: list[tuple[bytes, bytes]], expected: bool
) -> None:
    """What may still come of an unread body is bounded, or the connection must end."""
    assert Body(feed(), LIMITS).unread(Call("POST", "/", headers=headers)) is expected


def test_a_connection_does_not_outlive_a_late_body() -> None:
    """Whoever stalls once is not waited for again."""
    body = Body(feed(ends=False), LIMITS)
    with pytest.raises(BodyTimeout):
        read(body)
    assert body.unread(Call("POST", "/", headers=[(b"content-length", b"3")]))


def test_a_client_that_leaves_is_noticed() -> None:
    """A disconnect is neither an empty body nor a protocol error."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        read(Body(receive, LIMITS))


@pytest.mark.parametrize("name", [b"gzip", b"GZIP", b"x-gzip", b" gzip "])
def test_gzip_is_undone(name: bytes) -> None:
    """Whatever the case of the coding's name."""
    assert read(Body(feed(gzip.compress(b"hello")), LIMITS), (b"content-encoding", name)) == b"hello"


def test_gzip_members_are_concatenated() -> None:
    """RFC 1952: a stream may have several members."""
    assert inflate(gzip.compress(b"ab") + gzip.compress(b"cd"), 100) == b"abcd"


@pytest.mark.parametrize("name", [b"br", b"deflate", b"gzip, gzip", b"zstd"])
def test_an_unknown_coding_is_refused_unless_the_protocol_ignores_it(name: bytes) -> None:
    """Strict protocols answer UnsupportedMedia; lenient ones read the body as it is."""
    with pytest.raises(UnsupportedMedia):
        read(Body(feed(b"x"), LIMITS), (b"content-encoding", name))
    assert read(Body(feed(b"x"), LIMITS), (b"content-encoding", name), lenient=True) == b"x"


def test_a_gzip_bomb_stops_at_the_limit() -> None:
    """The decompressed size is bounded while it grows, over members too."""
    with pytest.raises(BodyTooLarge, match="decompressed"):
        inflate(gzip.compress(bytes(10_000_000)), 1000)
    with pytest.raises(BodyTooLarge, match="decompressed"):
        inflate(gzip.compress(bytes(600)) * 2, 1000)


def test_a_flood_of_gzip_members_is_read_in_linear_time_and_bounded() -> None:
    """2 MB of empty members are refused after a number of them; as many as may be are read in good time."""
    member = gzip.compress(b"", mtime=0)
    started = time.perf_counter()
    assert inflate(member * 16_000 + gzip.compress(b"end"), 100) == b"end"
    with pytest.raises(BodyTooLarge, match="members"):
        inflate(member * 100_000, 100)
    assert time.perf_counter() - started < 2


def test_a_body_larger_than_a_piece_is_inflated_whole() -> None:
    """Members may begin and end anywhere in what is fed to the decompressor at once."""
    parts = [random.Random(seed).randbytes(seed * 9_000) for seed in range(1, 5)]
    assert inflate(b"".join(map(gzip.compress, parts)), 100_000) == b"".join(parts)


def test_a_small_gzip_body_that_grows_leaves_the_event_loop() -> None:
    """60 KB may become 60 MB: other requests are served meanwhile."""
    packed = gzip.compress(bytes(20 << 20))
    body = Body(feed(packed), LimitsConfig())

    async def ticks() -> int:
        call = Call("POST", "/", headers=[(b"content-encoding", b"gzip")])
        reading = asyncio.create_task(body.read(call, ignores_unknown_codings=False))
        count = 0
        while not reading.done():
            await asyncio.sleep(0)
            count += 1
        assert len(await reading) == 20 << 20
        return count

    assert asyncio.run(ticks()) > 10


def test_a_dripping_body_has_one_deadline() -> None:
    """The time does not begin anew with the first bytes."""
    messages = iter([b"x", b"x"])

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.15)
        return {"type": "http.request", "body": next(messages, b""), "more_body": True}

    body = Body(receive, LimitsConfig(body_seconds=0.2))
    with pytest.raises(BodyTimeout):
        read(body)
    assert body.size < 2


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"not gzip", "corrupt"),
        (gzip.compress(b"hello")[:-4], "truncated"),
        (gzip.compress(b"hello")[:-5] + b"\x00" * 5, "corrupt"),
        (gzip.compress(b"hello") + b"tail", "corrupt"),
    ],
)
def test_a_broken_gzip_stream_is_malformed(body: bytes, text: str) -> None:
    """Corrupt and truncated streams are told apart."""
    with pytest.raises(MalformedBody, match=text):
        inflate(body, 1000)


def test_discarding_ends_with_the_body_the_bound_or_the_time() -> None:
    """What a refused client still sends is dropped, for a while."""

    async def discard(body: Body, seconds: float, most: int) -> int:
        await body.discard(seconds, most)
        return body.size

    assert asyncio.run(discard(Body(feed(b"x", b"x"), LIMITS), 5, 100)) == 2
    assert asyncio.run(discard(Body(feed(*[b"xx"] * 9), LIMITS), 5, 3)) == 4
    assert asyncio.run(discard(Body(feed(b"x", ends=False), LIMITS), 0.01, 100)) == 1


def test_a_long_run_ends_with_its_client() -> None:
    """Who hangs up before the answer cancels what it is computed by; who stays gets it."""
    cancelled = asyncio.Event()

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def leave() -> bool:
        with pytest.raises(ClientGone):
            await Body(gone, LIMITS).unless_gone(run())
        return cancelled.is_set()

    assert asyncio.run(leave())

    async def answer() -> int:
        return 7

    assert asyncio.run(Body(feed(), LIMITS).unless_gone(answer())) == 7
    assert asyncio.run(Body(feed(b"again"), LIMITS).unless_gone(answer())) == 7
