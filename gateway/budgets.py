"""How much may be used a second: token buckets, behind what a leased budget of many processes can offer as well."""

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from gateway.limitsconfig import KeyLimitsConfig, ServiceLimits

Clock = Callable[[], float]


class Budget(Protocol):
    """Something of which so much comes a second. Nothing here waits."""

    rate: float

    def take(self, amount: float) -> float:
        """Take it and return 0; or take nothing, and return after how many seconds it may be had."""

    def give(self, amount: float) -> None:
        """Bring back what was taken for nothing."""

    def left(self) -> float:
        """What may be taken now."""

    def retune(self, rate: float) -> None:
        """Let so much come from now on; what is there and was not used never grows by it."""


class TokenBucket:
    """A budget of this process: what a second brings may be taken at once, and no more is saved up.

    More than a second brings can be taken when the bucket is full; what it owes then must come in first.
    """

    __slots__ = ("_at", "_clock", "_tokens", "rate")

    def __init__(self, rate: float, clock: Clock = monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._at = clock()
        self._tokens = self._most

    @property
    def _most(self) -> float:
        return max(self.rate, 1.0)

    def take(self, amount: float) -> float:
        """Take it and return 0; or take nothing, and return after how many seconds it may be had."""
        missing = min(amount, self._most) - self.left()
        if missing > 0:
            return missing / self.rate
        self._tokens -= amount
        return 0.0

    def give(self, amount: float) -> None:
        """Bring back what was taken for nothing."""
        self._tokens = min(self._most, self._tokens + amount)

    def left(self) -> float:
        """What may be taken now."""
        now = self._clock()
        self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self.rate)
        self._at = now
        return self._tokens

    def retune(self, rate: float) -> None:
        """Let so much come from now on; what is there and was not used never grows by it."""
        left = self.left()
        self.rate = rate
        self._tokens = min(left, self._most)


MakeBudget = Callable[[str, float], Budget]
"""Makes the budget of that name, of which so much comes a second."""


class Rates:
    """The budgets of a service, or of one key of it: requests, rows and bytes, each bounded or not."""

    __slots__ = ("_make", "_name", "bytes", "requests", "rows")

    def __init__(self, name: str, make: MakeBudget) -> None:
        self._name = name
        self._make = make
        self.requests: Budget | None = None
        self.rows: Budget | None = None
        self.bytes: Budget | None = None

    def tune(self, limits: ServiceLimits | KeyLimitsConfig) -> None:
        """Set what comes a second; 0 sets no bound."""
        self.requests = self._tuned("requests", self.requests, limits.requests_per_second)
        self.rows = self._tuned("rows", self.rows, limits.rows_per_second)
        self.bytes = self._tuned("bytes", self.bytes, limits.bytes_per_second)

    @property
    def full(self) -> bool:
        """Whether they are as good as new ones."""
        return all(one is None or one.left() >= one.rate for one in (self.requests, self.rows, self.bytes))

    def _tuned(self, unit: str, budget: Budget | None, rate: float) -> Budget | None:
        if not rate:
            return None
        if budget is None:
            return self._make(f"{self._name} {unit}", rate)
        budget.retune(rate)
        return budget
