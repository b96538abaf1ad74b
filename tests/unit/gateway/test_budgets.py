"""Token buckets: what a second brings, and what a change of it does."""

import pytest

from gateway.budgets import TokenBucket


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def admitted(bucket: TokenBucket, clock: Clock, seconds: float, step: float, amount: float = 1) -> int:
    """How many of the requests that come every `step` seconds get through."""
    count = 0
    for _ in range(round(seconds / step)):
        count += not bucket.take(amount)
        clock.now += step
    return count


@pytest.mark.parametrize(("rate", "most"), [(5.0, 5), (100.0, 100), (1.0, 1), (0.25, 1)])
def test_a_burst_is_what_one_second_brings(rate: float, most: int) -> None:
    """At one moment so many get through, and at least one."""
    bucket = TokenBucket(rate, Clock())
    assert sum(not bucket.take(1) for _ in range(1000)) == most


def test_the_rate_holds_over_time() -> None:
    """In ten seconds of ten times the load: one second's worth at once, and what ten seconds bring."""
    clock = Clock()
    assert admitted(TokenBucket(10, clock), clock, 10.0, 0.01) == pytest.approx(110, abs=1)


def test_the_wait_that_is_told_is_long_enough() -> None:
    """Whoever comes again after it gets through; just before, not."""
    clock = Clock()
    bucket = TokenBucket(4, clock)
    while not (seconds := bucket.take(1)):
        pass
    assert seconds == pytest.approx(0.25)
    clock.now += seconds * 0.99
    assert bucket.take(1) > 0
    clock.now += seconds * 0.02
    assert bucket.take(1) == 0.0


def test_more_than_a_second_brings_is_owed() -> None:
    """A request of 40 rows against 10 rows a second gets through, and the next one waits four seconds."""
    clock = Clock()
    bucket = TokenBucket(10, clock)
    assert bucket.take(40) == 0.0
    assert bucket.take(10) == pytest.approx(4.0)
    clock.now += 4.0
    assert bucket.take(10) == 0.0


def test_what_is_given_back_may_be_taken_again_and_no_more() -> None:
    """A bucket never holds more than a second's worth."""
    bucket = TokenBucket(2, Clock())
    assert [bucket.take(1), bucket.take(1)] == [0.0, 0.0]
    bucket.give(1)
    assert bucket.take(1) == 0.0
    bucket.give(50)
    assert bucket.left() == 2


@pytest.mark.parametrize(("rate", "left"), [(1.0, 1.0), (3.0, 3.0), (1000.0, 10.0)])
def test_a_change_grants_nothing_at_once(rate: float, left: float) -> None:
    """Changing a limit again and again must not be a way around it: a lower one binds at once, a higher one grows."""
    bucket = TokenBucket(10, Clock())
    for _ in range(5):
        bucket.retune(rate)
    assert bucket.left() == left


def test_time_that_steps_back_grants_nothing() -> None:
    """The clock is the monotonic one; even so a step back must neither fill nor break the bucket."""
    clock = Clock()
    bucket = TokenBucket(10, clock)
    for _ in range(10):
        bucket.take(1)
    clock.now -= 3600
    assert 0 < bucket.take(1) <= 0.1
