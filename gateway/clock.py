"""The time of day as expiries are measured by: it never steps, whatever is done to the machine's clock meanwhile."""

import time
from collections.abc import Callable


class SteadyClock:
    """Unix seconds, read from the machine once, then carried on by the monotonic clock.

    NOTE: a clock that is put back an hour must not give an expired key or service another hour.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def __call__(self) -> float:
        return self._monotonic() + self._offset
