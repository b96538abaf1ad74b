"""What batching did, counted for the metrics page."""

from bisect import bisect_left

SIZE_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
WAIT_BOUNDS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
"""Seconds."""


class Histogram:
    """Plain numbers, bumped on the event loop only."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One per bound, then those above the last; not cumulative."""
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Tally:
    """Of one version of a model."""

    def __init__(self) -> None:
        self.requests = Histogram(SIZE_BOUNDS)
        """Requests in each run."""
        self.waits = Histogram(WAIT_BOUNDS)
        """Of each run: how long the first of its requests waited for it."""
        self.retries = 0
        """Runs that were repeated in halves because they failed."""
