"""The scaling rule under any series of loads and any settings."""

import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ExpectationConfig, ScalingConfig, StepConfig
from gateway.control.scaling import Decision, simulate

steps = st.builds(
    StepConfig,
    interval_seconds=st.sampled_from([0.0, 10.0, 60.0]),
    max_nodes=st.integers(0, 5),
    max_percent=st.sampled_from([0.0, 10.0, 50.0, 200.0]),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[ScalingConfig, list[Decision]]:
    """A rule, and what it decides over a series with gaps in time and in the metrics."""
    low = draw(st.integers(0, 6))
    rule = ScalingConfig(
        min=low,
        max=draw(st.integers(max(low, 1), 20)),
        expectations=(ExpectationConfig("concurrency", 4.0), ExpectationConfig("latency_ms", 100.0)),
        up=draw(steps),
        down=draw(steps),
        window_seconds=draw(st.sampled_from([0.0, 30.0, 300.0])),
    )
    values: st.SearchStrategy[Any] = st.none() | st.floats(0, 40)
    looks = draw(st.lists(st.tuples(st.floats(0.5, 90), values, values), min_size=1, max_size=60))
    at, series = 0.0, []
    for gap, concurrency, latency in looks:
        at += gap
        measured = {"concurrency": concurrency, "latency_ms": None if latency is None else latency * 10}
        series.append((at, {name: value for name, value in measured.items() if value is not None}))
    return rule, list(simulate(rule, draw(st.integers(0, 24)), series))


@given(cases())
def test_the_target_lies_within_its_bounds(case: tuple[ScalingConfig, list[Decision]]) -> None:
    """Never fewer nodes than min, never more than max, whatever was measured."""
    rule, decisions = case
    assert all(rule.min <= decision.target <= rule.max for decision in decisions)


@given(cases())
def test_a_step_is_no_longer_than_allowed(case: tuple[ScalingConfig, list[Decision]]) -> None:
    """Within min and max, each change keeps to both bounds of its direction, the smaller of the two."""
    rule, decisions = case
    for decision in decisions:
        if not rule.min <= decision.nodes <= rule.max:
            continue
        step, moved = (rule.up, decision.target - decision.nodes)
        if moved < 0:
            step, moved = rule.down, -moved
        if step.max_nodes:
            assert moved <= step.max_nodes
        if step.max_percent:
            assert moved <= max(1, math.ceil(decision.nodes * step.max_percent / 100))


@given(cases())
def test_nodes_never_go_against_a_metric(case: tuple[ScalingConfig, list[Decision]]) -> None:
    """Down only where every metric is known and was below through the window; up only where one wants more."""
    rule, decisions = case
    for number, decision in enumerate(decisions):
        if not rule.min <= decision.nodes <= rule.max:
            continue
        if decision.target > decision.nodes:
            assert decision.want > decision.nodes
        if decision.target < decision.nodes:
            window = [one for one in decisions[: number + 1] if one.at >= decision.at - rule.window_seconds]
            for one in window:
                assert all(reading.actual is not None for reading in one.readings)
                assert all(reading.actual < reading.expected for reading in one.readings if reading.actual is not None)
            assert decision.target >= max(one.want for one in window)


@given(cases())
def test_steps_keep_their_intervals(case: tuple[ScalingConfig, list[Decision]]) -> None:
    """Two steps in one direction lie at least that direction's interval apart."""
    rule, decisions = case
    within = [one for one in decisions if rule.min <= one.nodes <= rule.max and one.changes]
    for sign, step in ((1, rule.up), (-1, rule.down)):
        times = [one.at for one in within if (one.target - one.nodes) * sign > 0]
        assert all(later - earlier >= step.interval_seconds for earlier, later in pairwise(times))
