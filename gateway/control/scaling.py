"""How many nodes a service should have: a pure rule over what was measured, with the clock as an argument.

Wanted are ceil(nodes x actual / expected) nodes, by the metric that wants most. Up at once, within the steps; down only
when every value of a whole window lay below its expectation, and never below what any moment of it asked for.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gateway.config import ScalingConfig, StepConfig

_MOST_WANTED = 1e9
"""Far more than any service may have, and a number that JSON has."""
_ROUNDING = 1e-9
"""What floating point may add to a whole number: 3 x 0.2 / 0.2 nodes are 3, not 4."""


class Reading(Struct, frozen=True):
    """One expectation at one moment."""

    metric: str
    expected: float
    actual: float | None
    """Averaged over the nodes where the metric belongs to a node; None if nobody could tell."""
    want: int | None
    """The nodes that it asks for."""


class Moment(Struct, frozen=True):
    """What is remembered of one look at the metrics."""

    at: float
    want: int
    below: bool
    """Whether every metric was known, and below its expectation."""


class History(Struct, frozen=True):
    """What the rule remembers from one look to the next; times are the monotonic clock's, in seconds."""

    begun: float | None = None
    """Since when the moments of the window are complete."""
    moments: tuple[Moment, ...] = ()
    """Of the window, oldest first."""
    last_up: float | None = None
    last_down: float | None = None


class Decision(Struct, frozen=True):
    """How many nodes there should be from now on, and why."""

    at: float
    nodes: int
    readings: tuple[Reading, ...]
    want: int
    """Before any limit."""
    target: int
    rule: str
    """What decided: for people, and the same for the same inputs."""

    @property
    def changes(self) -> bool:
        """Whether nodes are to come or go."""
        return self.target != self.nodes


def decide(
    config: ScalingConfig, nodes: int, actual: Mapping[str, float], now: float, history: History
) -> tuple[Decision, History]:
    """The decision at this moment, and what to remember of it; metrics that `actual` lacks are unknown."""
    readings = tuple(
        _reading(expectation.metric, expectation.value, actual, nodes) for expectation in config.expectations
    )
    known = [reading.want for reading in readings if reading.want is not None]
    want = max(known, default=nodes)
    below = bool(readings) and all(one.actual is not None and one.actual < one.expected for one in readings)
    history = _remembered(history, Moment(now, want, below), config.window_seconds)
    target, rule = _target(config, nodes, want, now, history, complete=len(known) == len(readings))
    decision = Decision(now, nodes, readings, want, target, rule)
    if target > nodes:
        return decision, replace(history, last_up=now)
    if target < nodes:
        return decision, replace(history, last_down=now, begun=None, moments=())
    return decision, history


def simulate(
    config: ScalingConfig, nodes: int, series: Iterable[tuple[float, Mapping[str, float]]]
) -> Iterator[Decision]:
    """The decisions over a series of (seconds, metrics), as if nodes came and went at once."""
    history = History()
    for at, actual in series:
        decision, history = decide(config, nodes, actual, at, history)
        yield decision
        nodes = decision.target


def _reading(metric: str, expected: float, actual: Mapping[str, float], nodes: int) -> Reading:
    value = actual.get(metric)
    if value is None or not math.isfinite(value):
        return Reading(metric, expected, None, None)
    if nodes == 0:
        return Reading(metric, expected, value, int(value > 0))
    return Reading(metric, expected, value, math.ceil(min(nodes * value / expected, _MOST_WANTED) - _ROUNDING))


def _remembered(history: History, moment: Moment, window_seconds: float) -> History:
    kept = tuple(one for one in history.moments if one.at >= moment.at - window_seconds)
    # NOTE: where nobody looked for a whole window, nobody knows what it was like.
    begun = history.begun if kept and history.begun is not None else moment.at
    return replace(history, moments=(*kept, moment), begun=begun)


def _target(
    config: ScalingConfig, nodes: int, want: int, now: float, history: History, *, complete: bool
) -> tuple[int, str]:
    if nodes < config.min:
        return config.min, f"at least {config.min}"
    if nodes > config.max:
        return config.max, f"at most {config.max}"
    if want > nodes:
        return _up(config, nodes, want, now, history)
    if want == nodes:
        return nodes, "as many as wanted"
    if not complete:
        return nodes, "a metric is missing: no way down"
    return _down(config, nodes, now, history)


def _up(config: ScalingConfig, nodes: int, want: int, now: float, history: History) -> tuple[int, str]:
    if not _may(config.up, now, history.last_up):
        return nodes, f"up at most every {config.up.interval_seconds:g} s"
    return min(
        (want, f"{want} wanted"),
        *_steps(config.up, nodes, +1),
        (config.max, f"at most {config.max}"),
        key=lambda limit: limit[0],
    )


def _down(config: ScalingConfig, nodes: int, now: float, history: History) -> tuple[int, str]:
    begun = now if history.begun is None else history.begun
    if now - begun < config.window_seconds:
        return nodes, f"the window of {config.window_seconds:g} s is not full"
    if not all(moment.below for moment in history.moments):
        return nodes, f"not every value of the last {config.window_seconds:g} s was below its expectation"
    most = max(moment.want for moment in history.moments)
    if most >= nodes:
        return nodes, f"{most} wanted within the last {config.window_seconds:g} s"
    if not _may(config.down, now, history.last_down):
        return nodes, f"down at most every {config.down.interval_seconds:g} s"
    return max(
        (most, f"{most} wanted"),
        *_steps(config.down, nodes, -1),
        (config.min, f"at least {config.min}"),
        key=lambda limit: limit[0],
    )


def _may(step: StepConfig, now: float, last: float | None) -> bool:
    return last is None or now - last >= step.interval_seconds


def _steps(step: StepConfig, nodes: int, sign: int) -> Iterator[tuple[int, str]]:
    """The limits of a step that are set; each lets at least one node come or go."""
    if step.max_nodes:
        yield nodes + sign * step.max_nodes, f"{sign * step.max_nodes:+} nodes at a time"
    if step.max_percent:
        most = max(1, math.ceil(nodes * step.max_percent / 100 - _ROUNDING))
        yield nodes + sign * most, f"{sign * step.max_percent:+g} % at a time, {sign * most:+}"
