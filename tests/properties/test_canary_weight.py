"""The canary's share of requests is exact, whatever the weight, and however often it is changed."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.canary import Turns

WEIGHTS = st.integers(0, 100)


@given(WEIGHTS, st.integers(0, 1200), st.integers(1, 1000))
def test_any_run_of_requests_has_its_share(weight: int, before: int, requests: int) -> None:
    """Of any number of requests in a row, the canary gets its percent to within one."""
    turns = Turns()
    for _ in range(before):
        turns.canary(weight)
    taken = sum(turns.canary(weight) for _ in range(requests))
    assert abs(taken - requests * weight / 100) < 1


@given(WEIGHTS)
def test_a_thousand_requests_are_split_to_the_last(weight: int) -> None:
    """From the start, 1,000 requests give the canary ten times its percent exactly."""
    turns = Turns()
    assert sum(turns.canary(weight) for _ in range(1000)) == 10 * weight


@given(st.lists(st.tuples(WEIGHTS, st.integers(1, 300)), min_size=1, max_size=8))
def test_each_weight_holds_from_the_moment_it_is_set(phases: list[tuple[int, int]]) -> None:
    """A change of the weight in the midst of requests costs nobody his share."""
    turns = Turns()
    for weight, requests in phases:
        taken = sum(turns.canary(weight) for _ in range(requests))
        assert abs(taken - requests * weight / 100) < 1


@given(WEIGHTS, WEIGHTS, st.integers(1, 500))
def test_copies_have_a_count_of_their_own(weight: int, percent: int, requests: int) -> None:
    """Shadow and canary take nothing from one another."""
    turns = Turns()
    seen = [(turns.canary(weight), turns.shadow(percent)) for _ in range(requests)]
    assert abs(sum(copied for _, copied in seen) - requests * percent / 100) < 1
    assert abs(sum(taken for taken, _ in seen) - requests * weight / 100) < 1
