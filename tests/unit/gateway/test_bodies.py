"""All bodies share a bound, and memory that large ones took is given back."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from gateway import bodies as module
from gateway.bodies import SMALL_BYTES, Bodies
from gateway.body import Body
from gateway.config import LimitsConfig
from gateway.errors import BodyTooLarge, Overloaded
from gateway.types import Call

LIMITS = LimitsConfig(body_bytes=1_000_000, bodies_bytes=1_500_000)


def feed(*chunks: bytes) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    """ASGI's receive, with those chunks."""
    left = list(chunks)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


def read(body: Body, declared: int | None = None) -> bytes:
    """The body, whose length may be declared."""
    headers = [] if declared is None else [(b"content-length", b"%d" % declared)]
    call = Call("POST", "/", headers=headers)
    body.check_length(call)
    return asyncio.run(body.read(call, ignores_unknown_codings=False))


def test_bodies_fill_the_room_and_leave_it() -> None:
    """The second large one has no room, whether it says so before or grows so; when the first is gone it has."""
    bodies = Bodies(LIMITS)
    first = Body(feed(bytes(900_000)), LIMITS, bodies)
    read(first, 900_000)
    assert bodies.held == 900_000
    with pytest.raises(Overloaded):
        read(Body(feed(), LIMITS, bodies), 700_000)
    growing = Body(feed(*[bytes(100_000)] * 9), LIMITS, bodies)
    with pytest.raises(Overloaded):
        read(growing)
    growing.close()
    assert bodies.held == 900_000
    first.close()
    first.close()
    assert bodies.held == 0
    assert len(read(Body(feed(bytes(900_000)), LIMITS, bodies), 900_000)) == 900_000


def test_small_bodies_are_not_counted() -> None:
    """They come in while large ones fill all the room."""
    bodies = Bodies(LIMITS)
    bodies.hold(LIMITS.bodies_bytes)
    assert read(Body(feed(bytes(SMALL_BYTES)), LIMITS, bodies), SMALL_BYTES) == bytes(SMALL_BYTES)


def test_a_body_over_its_own_limit_is_told_so() -> None:
    """BodyTooLarge, however short memory is: sending it again later would not help."""
    bodies = Bodies(LIMITS)
    bodies.shrink(100_000)
    with pytest.raises(BodyTooLarge):
        read(Body(feed(), LIMITS, bodies), 1_000_001)


def test_large_bodies_are_refused_while_memory_is_short() -> None:
    """Declared or not; and taken again afterwards."""
    bodies = Bodies(LIMITS)
    bodies.shrink(100_000)
    with pytest.raises(Overloaded, match="memory is short"):
        read(Body(feed(), LIMITS, bodies), 100_001)
    growing = Body(feed(*[bytes(60_000)] * 3), LIMITS, bodies)
    with pytest.raises(Overloaded, match="memory is short"):
        read(growing)
    growing.close()
    assert read(Body(feed(bytes(100_000)), LIMITS, bodies), 100_000)
    bodies.shrink(None)
    assert read(Body(feed(bytes(900_000)), LIMITS, bodies), 900_000)


@pytest.mark.parametrize(("size", "trims"), [(100, 0), (200, 1)])
def test_memory_is_given_back_once_large_bodies_are_gone(
    size: int, trims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after each one, and not after small ones."""
    monkeypatch.setattr(module, "TRIM_BYTES", 150)
    monkeypatch.setattr(module, "TRIM_SECONDS", 0.01)
    done: list[int] = []

    class Libc:
        def malloc_trim(self, pad: int) -> None:
            done.append(pad)

    async def bring() -> None:
        bodies = Bodies(LIMITS)
        bodies._libc = Libc()  # type: ignore[assignment]
        for _ in range(3):
            bodies.hold(size)
            bodies.free(size)
        await asyncio.sleep(0.1)

    asyncio.run(bring())
    assert len(done) == trims
