"""The gate of a service: places, the line before them, and deadlines."""

import asyncio

import pytest
from door import CALL, Door, named, waits
from scene import on_loop

from gateway.errors import DeadlineExceeded, MalformedBody, Overloaded
from gateway.types import Call

# Places and the line...


@on_loop
async def test_a_full_service_has_a_bounded_line() -> None:
    """Two run, one waits, the fourth is told at once; whoever leaves makes place for the next."""
    door = Door(concurrency=2, queue=1)
    first, second = door.enter(), door.enter()
    assert first.turn is None
    third = door.enter()
    waiting = await waits(third)
    error = door.refused(Overloaded)
    assert "2 run, 1 wait" in str(error)
    assert door.counts() == (2, 1)
    door.now += 0.5
    first.release()
    await waiting
    assert door.counts() == (2, 0)
    for visit in (second, third):
        visit.release()
    assert door.counts() == (0, 0)
    assert dict(door.limits.tally.refused) == {("s", "queue_full"): 1}


@on_loop
async def test_retry_after_follows_the_drain_rate() -> None:
    """At 2 places and 4 seconds a request, a line of 3 and the caller drain in 8 seconds."""
    door = Door(concurrency=2, queue=3)
    first, _ = door.enter(), door.enter()
    door.now += 4.0
    first.release()
    door.enter()
    for _ in range(3):
        door.enter()
    error = door.refused(Overloaded)
    assert isinstance(error, Overloaded)
    assert error.retry_after == pytest.approx(8.0)


@on_loop
async def test_without_a_queue_a_full_service_refuses_at_once() -> None:
    """queue = 0: nobody waits, whoever asks."""
    door = Door(concurrency=1, queue=0)
    door.enter("a")
    door.refused(Overloaded, "b")
    assert door.counts() == (1, 0)


@on_loop
async def test_a_key_with_a_long_line_makes_room() -> None:
    """A heavy key has filled the line: the light one still gets in, and the heavy one's last request is told so."""
    door = Door(concurrency=1, queue=3)
    running = door.enter("heavy")
    heavy = [await waits(door.enter("heavy")) for _ in range(3)]
    door.refused(Overloaded, "heavy")
    light = door.enter("light")
    turn = await waits(light)
    with pytest.raises(Overloaded):
        await heavy[2]
    assert door.counts() == (1, 3)
    running.release()
    await asyncio.wait([*heavy[:2], turn], return_when=asyncio.FIRST_COMPLETED)
    assert [task.done() for task in (*heavy[:2], turn)].count(True) == 1
    for task in (*heavy[:2], turn):
        task.cancel()


@on_loop
async def test_a_light_key_is_served_between_the_requests_of_a_heavy_one() -> None:
    """Ten of one key wait; the one that comes last, of another key, is second."""
    door = Door(concurrency=1, queue=20)
    running = door.enter("heavy")
    order: list[str] = []

    async def stay(key: str) -> None:
        visit = door.enter(key)
        await visit.come_in()
        order.append(key)
        door.now += 1.0
        visit.release()

    tasks = [asyncio.create_task(stay("heavy")) for _ in range(10)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(stay("light")))
    await asyncio.sleep(0)
    door.now += 1.0
    running.release()
    await asyncio.gather(*tasks)
    assert order.index("light") <= 1
    assert door.counts() == (0, 0)


@on_loop
async def test_a_caller_that_leaves_the_line_never_gets_a_place() -> None:
    """Its turn goes to the next one, and it is counted."""
    door = Door(concurrency=1, queue=5)
    running, gone, here = door.enter(), door.enter(), door.enter()
    leaving, staying = await waits(gone), await waits(here)
    leaving.cancel()
    await asyncio.wait([leaving])
    gone.release()
    assert door.counts() == (1, 1)
    running.release()
    await staying
    assert (gone.placed, here.placed) == (False, True)
    here.release()
    assert door.counts() == (0, 0)
    assert dict(door.limits.tally.cancelled) == {("s", "queue"): 1}


@on_loop
async def test_a_caller_that_leaves_as_its_turn_comes_gives_the_place_back() -> None:
    """Cancelled in the same moment: no place is lost."""
    door = Door(concurrency=1, queue=5)
    running, gone = door.enter(), door.enter()
    leaving = await waits(gone)
    running.release()
    leaving.cancel()
    await asyncio.wait([leaving])
    assert door.counts() == (1, 0)
    gone.release()
    assert door.counts() == (0, 0)


@on_loop
async def test_a_stream_keeps_its_place_until_it_ends() -> None:
    """The last one to release it frees it."""
    door = Door(concurrency=1, queue=0)
    visit = door.enter()
    visit.acquire()
    visit.release()
    door.refused(Overloaded)
    visit.release()
    assert door.counts() == (0, 0)


@on_loop
async def test_a_large_service_counts_every_place() -> None:
    """While it is half empty requests share a visit; the count is right all the same, and the last place the last."""
    door = Door(concurrency=20, queue=1)
    visits = [door.enter() for _ in range(20)]
    assert visits[0] is visits[1]
    assert door.counts() == (20, 0)
    waiting = door.enter()
    turn = await waits(waiting)
    door.refused(Overloaded)
    visits[0].acquire()
    visits[0].release()
    assert not turn.done()
    visits[1].release()
    await turn
    for visit in (*visits[:1], *visits[2:], waiting):
        visit.release()
    assert door.counts() == (0, 0)


# Deadlines...


@on_loop
async def test_an_expired_request_is_not_taken() -> None:
    """Its deadline passed while its body came."""
    door = Door(deadline_ms=100)
    arrived = door.now
    door.now += 0.2
    with pytest.raises(DeadlineExceeded):
        door.enter(since=arrived)
    assert door.counts() == (0, 0)
    assert dict(door.limits.tally.refused) == {("s", "deadline"): 1}


@on_loop
async def test_a_request_that_expires_in_line_is_told_and_never_runs() -> None:
    """At once, not when its turn comes."""
    door = Door(concurrency=1, queue=5)
    door.enter()
    late = door.enter(call=named(20))
    with pytest.raises(DeadlineExceeded):
        await late.come_in()
    late.release()
    assert door.counts() == (1, 0)
    assert dict(door.limits.tally.cancelled) == {("s", "queue"): 1}


@on_loop
async def test_a_turn_that_would_come_too_late_is_refused_at_once() -> None:
    """At a second a request, three seconds of line and one of its own do not suit a deadline of two."""
    door = Door(concurrency=1, queue=9)
    first = door.enter()
    door.now += 1.0
    first.release()
    door.enter()
    door.enter()
    door.enter()
    error = door.refused(Overloaded, call=named(2000))
    assert "deadline" in str(error)
    assert door.enter(call=named(4500)).turn is not None


@pytest.mark.parametrize(
    ("own", "call", "seconds"),
    [
        ({}, CALL, None),
        ({"deadline_ms": 500}, CALL, 0.5),
        ({"deadline_ms": 500}, named(2000), 2.0),
        ({"deadline_ms": 500, "max_deadline_ms": 1000}, named(2000), 1.0),
        ({"max_deadline_ms": 1000}, CALL, None),
        ({}, named(30), 0.03),
        ({}, Call("GRPC", "/", deadline=1004.0), 4.0),
        ({}, Call("GRPC", "/", headers=named(1000).headers, deadline=1004.0), 1.0),
        ({"deadline_ms": 500}, Call("GRPC", "/", deadline=1004.0), 4.0),
        ({"max_deadline_ms": 1000}, Call("GRPC", "/", deadline=1004.0), 1.0),
    ],
)
def test_whose_deadline_counts(own: dict[str, object], call: Call, seconds: float | None) -> None:
    """The caller's before the configured one, the earlier of the caller's two, and none beyond the longest."""
    door = Door(**own)
    deadline = door.enter(call=call).deadline
    assert (deadline if deadline is None else pytest.approx(deadline - door.now)) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "soon", "1e3", "99999999", "9" * 5000, "\N{SUPERSCRIPT TWO}"])
def test_a_deadline_that_is_none_is_refused(text: str) -> None:
    """By the header's name and what was expected."""
    call = Call("POST", "/", headers=[(b"x-tensorgate-deadline-ms", text.encode("latin-1"))])
    assert "X-Tensorgate-Deadline-Ms: expected a whole number" in str(Door().refused(MalformedBody, call=call))
