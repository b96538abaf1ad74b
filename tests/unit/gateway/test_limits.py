"""The gate of a service: places, the line before them, budgets, and what those are told who do not get in."""

import asyncio

import pytest
from scene import on_loop

from gateway.config import Config, convert
from gateway.errors import DeadlineExceeded, GatewayError, MalformedBody, Overloaded, RateLimited
from gateway.limits import MOST_GATES, Limits, Visit, Who
from gateway.types import Call

CALL = Call("POST", "/", body=b"12345678")


class Door:
    """A service `s` with those limits, on a clock that stands still until it is moved."""

    def __init__(self, general: dict[str, object] | None = None, **own: object) -> None:
        self.now = 1000.0
        self.limits = Limits(config(general, **own), lambda: self.now)
        self.gate = self.limits.gate("s")

    def enter(self, key: str = "", call: Call = CALL) -> Visit:
        return self.gate.enter(call, lambda: Who(key.encode(), key.encode()), lambda: self.now)

    def refused(self, kind: type[GatewayError], key: str = "", call: Call = CALL) -> GatewayError:
        with pytest.raises(kind) as caught:
            self.enter(key, call)
        return caught.value

    def change(self, **own: object) -> None:
        self.limits.adopt(config(None, **own))

    def counts(self) -> tuple[int, int]:
        return self.gate.running, len(self.gate.waiting)


def config(general: dict[str, object] | None = None, **own: object) -> Config:
    return convert({"limits": {"service": general or {}}, "services": {"s": {"limits": own}}}, Config, "test")


def named(deadline_ms: object) -> Call:
    return Call("POST", "/", headers=[(b"x-tensorgate-deadline-ms", str(deadline_ms).encode())])


async def waits(visit: Visit) -> "asyncio.Task[None]":
    """A task that waits for the visit's turn, and does so already."""
    task = asyncio.create_task(visit.come_in())
    await asyncio.sleep(0)
    return task


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


# Deadlines...


@on_loop
async def test_an_expired_request_is_not_taken() -> None:
    """Its deadline passed while its body came."""
    door = Door(deadline_ms=100)
    arrived = door.now
    door.now += 0.2
    with pytest.raises(DeadlineExceeded):
        door.gate.enter(CALL, lambda: Who(b"", b""), lambda: arrived)
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


# Rates...


@pytest.mark.parametrize(
    ("own", "admitted", "reason"),
    [
        ({"requests_per_second": 3}, 3, "requests"),
        ({"bytes_per_second": 16}, 2, "bytes"),
        ({"key": {"requests_per_second": 2}}, 2, "key_requests"),
        ({"key": {"bytes_per_second": 24}}, 3, "key_bytes"),
        ({"key": {"concurrency": 4}}, 4, "key_concurrency"),
        ({"requests_per_second": 9, "bytes_per_second": 16, "key": {"requests_per_second": 5}}, 2, "bytes"),
    ],
)
def test_every_rate_binds_from_the_first_moment(own: dict[str, object], admitted: int, reason: str) -> None:
    """What a second brings gets in; the next is told which limit it met, and when to come again."""
    door = Door(**own)
    for _ in range(admitted):
        door.enter("a")
    error = door.refused(RateLimited, "a")
    assert isinstance(error, RateLimited)
    assert error.retry_after
    assert error.retry_after > 0
    assert dict(door.limits.tally.refused) == {("s", reason): 1}
    assert door.gate.running == admitted


def test_a_refusal_uses_nothing_of_the_other_budgets() -> None:
    """Refused for its bytes, a request leaves its key the requests that it has."""
    door = Door(bytes_per_second=10, key={"requests_per_second": 2})
    big = Call("POST", "/", body=b"123456789012345")
    door.enter("a")
    door.refused(RateLimited, "a", big)
    door.refused(RateLimited, "a", big)
    door.now += 0.9
    door.enter("a", Call("POST", "/", body=b"1"))


def test_each_key_has_its_own() -> None:
    """One that has used up its budget takes nothing from another; those without a key share one."""
    door = Door(key={"requests_per_second": 1})
    door.enter("a")
    door.refused(RateLimited, "a")
    door.enter("b")
    door.enter("")
    door.refused(RateLimited, "")


def test_a_change_binds_in_the_first_window() -> None:
    """Also for keys that are known already, and as often as it is made."""
    door = Door(requests_per_second=100, key={"requests_per_second": 50})
    door.enter("a")
    for _ in range(10):
        door.change(requests_per_second=100, key={"requests_per_second": 2})
    assert door.limits.gate("s") is door.gate
    admitted = 0
    while admitted < 10:
        try:
            door.enter("a").release()
        except RateLimited:
            break
        admitted += 1
    assert admitted == 2
    door.change()
    for _ in range(100):
        door.enter("a").release()
    door.change(requests_per_second=3)
    for _ in range(3):
        door.enter("a").release()
    door.refused(RateLimited, "a")


def test_places_change_with_the_configuration() -> None:
    """Fewer hold for whoever comes next; those inside stay."""
    door = Door(concurrency=5, queue=0)
    visits = [door.enter() for _ in range(5)]
    door.change(concurrency=2, queue=0)
    door.refused(Overloaded)
    for visit in visits[:4]:
        visit.release()
    door.enter()
    door.refused(Overloaded)


def test_what_a_service_does_not_say_is_said_for_all() -> None:
    """Key by key; and a service that no table names has it all from there."""
    limits = Limits(config({"concurrency": 7, "queue": 3, "deadline_ms": 50}, queue=1))
    own, other = limits.gate("s").limits, limits.gate("other").limits
    assert (own.concurrency, own.queue, own.deadline_ms) == (7, 1, 50)
    assert (other.concurrency, other.queue, other.deadline_ms) == (7, 3, 50)


def test_what_is_left_is_told() -> None:
    """Of the key's own requests, if it has a bound of its own."""
    door = Door(requests_per_second=100, key={"requests_per_second": 4})
    allowance = door.enter("a").allowance
    assert allowance is not None
    assert (allowance.limit, allowance.remaining, allowance.reset_seconds) == (4, 3, 0.0)
    assert Door().enter().allowance is None


def test_gates_of_vanished_services_are_forgotten() -> None:
    """Models may come and go by call for years."""
    door = Door()
    visit = door.limits.gate("kept").enter(CALL, lambda: Who(b"", b""), lambda: door.now)
    for number in range(2 * MOST_GATES):
        door.limits.gate(f"m{number}")
    assert len(door.limits.gates()) <= MOST_GATES
    assert door.limits.gate("kept").running == 1
    visit.release()
