"""When a run is short enough for the event loop."""

import pytest

from backends._pace import INLINE_LIMIT_SECONDS, INLINE_SECONDS, NEVER, SLOW_RUNS, SLOW_SECONDS, Pace, measure


@pytest.mark.parametrize(
    ("seconds", "elements", "inline"),
    [
        (None, 10, NEVER),
        (INLINE_SECONDS, 10, NEVER),
        (20e-6, 784, 50 * 784),
        (50e-6, 0, 20),
        (0.0, 1, 1000),
    ],
)
def test_prediction(seconds: float | None, elements: int, inline: int) -> None:
    """The limit grows with the elements that fit into the longest allowed run; slow models have none."""
    assert pytest.approx(inline, abs=1) == Pace(seconds, elements).inline_elements


def test_slow_runs_leave_the_loop() -> None:
    """Slow runs in a row lower the limit below their size."""
    pace = Pace(10e-6, 1)
    for _ in range(SLOW_RUNS):
        assert pace.inline_elements == round(INLINE_LIMIT_SECONDS / 10e-6)
        pace.note(SLOW_SECONDS, 7)
    assert pace.inline_elements == 6


def test_a_single_slow_run_is_forgiven() -> None:
    """A machine that was busy for a moment changes nothing."""
    pace = Pace(10e-6, 1)
    for _ in range(10):
        pace.note(SLOW_SECONDS, 7)
        pace.note(SLOW_SECONDS / 2, 7)
    assert pace.inline_elements == round(INLINE_LIMIT_SECONDS / 10e-6)


def test_measuring_runs_a_few_times() -> None:
    """A short run is measured more than once, the first of them not counted."""
    runs: list[int] = []
    assert measure(lambda: runs.append(1), runs=3) >= 0
    assert len(runs) == 4


def test_a_failing_run_is_not_hidden() -> None:
    """What the run raises comes out."""
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0)
