"""Whether a run is short enough for the event loop: measured at load, corrected by what runs really take."""

import statistics
from collections.abc import Callable
from time import perf_counter

INLINE_SECONDS = 100e-6
"""A model whose smallest run takes longer never runs on the event loop."""
INLINE_LIMIT_SECONDS = 1e-3
"""The longest predicted run there. Prediction is linear in the elements, and most models gain by batching: an MLP
784-256-10 takes 19 us for one row, so up to 52 rows run on the loop, in 0.2 ms."""
SLOW_SECONDS = 2e-3
"""A run on the loop that takes longer was predicted wrongly, or the machine was busy."""
SLOW_RUNS = 3
"""In a row, before runs of that size leave the loop for good."""

_RUNS = 9
_BUDGET_SECONDS = 0.05

NEVER = -1


class Pace:
    """How many elements a request may have to run on the event loop.

    PERF: a hop to a thread and back costs 20 to 60 us, a run of a small model 6 to 20 us.
    """

    def __init__(self, seconds: float | None, elements: int) -> None:
        """`seconds` is what a run with that many elements took, None if nobody knows."""
        self.inline_elements = NEVER
        self._slow = 0
        if seconds is not None and seconds < INLINE_SECONDS:
            self.inline_elements = int(max(elements, 1) * INLINE_LIMIT_SECONDS / max(seconds, 1e-6))

    def note(self, seconds: float, elements: int) -> None:
        """Learn from a run on the loop."""
        if seconds < SLOW_SECONDS:
            self._slow = 0
            return
        self._slow += 1
        if self._slow >= SLOW_RUNS:
            self.inline_elements = min(self.inline_elements, elements - 1)
            self._slow = 0


def measure(run: Callable[[], object], runs: int = _RUNS) -> float:
    """The median of a few runs in seconds; of a long run, the first must do."""
    times = [_timed(run)]
    if times[0] > _BUDGET_SECONDS:
        return times[0]
    spent, times = 0.0, []
    while len(times) < runs and (not times or spent < _BUDGET_SECONDS):
        times.append(_timed(run))
        spent += times[-1]
    return statistics.median(times)


def _timed(run: Callable[[], object]) -> float:
    started = perf_counter()
    run()
    return perf_counter() - started
