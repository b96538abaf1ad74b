"""What a service, and each key of it, may use a second, and what a change of the limits does."""

import pytest
from door import CALL, Caller, Door, config

from gateway.errors import Overloaded, RateLimited
from gateway.limits import MOST_GATES, Limits
from gateway.types import Call

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
    visit = door.limits.gate("kept").enter(CALL, Caller("", 0.0))
    for number in range(2 * MOST_GATES):
        door.limits.gate(f"m{number}")
    assert len(door.limits.gates()) <= MOST_GATES
    assert door.limits.gate("kept").running == 1
    visit.release()
