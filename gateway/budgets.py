"""How much may be used a second, in this process: token buckets."""

from collections.abc import Callable
from time import monotonic

from gateway.limitsconfig import KeyLimitsConfig, ServiceLimits

Clock = Callable[[], float]


class TokenBucket:
    """What a second brings may be taken at once, and no more is saved up. Nothing here waits.

    More than a second brings can be taken when the bucket is full; what it owes then must come in first.
    """

    __slots__ = ("_at", "_clock", "_tokens", "rate", "told")

    def __init__(self, rate: float, clock: Clock = monotonic, told: float = 0.0) -> None:
        self.rate = rate
        self.told = told or rate
        """What comes a second to all processes together."""
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
            return missing / self.told
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

    def retune(self, rate: float, told: float = 0.0) -> None:
        """Let so much come from now on; what is there and was not used never grows by it."""
        left = self.left()
        self.rate = rate
        self.told = told or rate
        self._tokens = min(left, self._most)


class Rates:
    """The budgets of a service, or of one key of it: requests, rows and bytes, each bounded or not."""

    __slots__ = ("_clock", "bytes", "requests", "rows")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.requests: TokenBucket | None = None
        self.rows: TokenBucket | None = None
        self.bytes: TokenBucket | None = None

    def tune(self, limits: ServiceLimits | KeyLimitsConfig, part: float = 1.0) -> None:
        """Set what comes a second, of which this process has a part; 0 sets no bound."""
        self.requests = self._tuned(self.requests, limits.requests_per_second, part)
        self.rows = self._tuned(self.rows, limits.rows_per_second, part)
        self.bytes = self._tuned(self.bytes, limits.bytes_per_second, part)

    @property
    def full(self) -> bool:
        """Whether they are as good as new ones."""
        return all(one is None or one.left() >= one.rate for one in (self.requests, self.rows, self.bytes))

    def _tuned(self, budget: TokenBucket | None, rate: float, part: float) -> TokenBucket | None:
        if not rate:
            return None
        if budget is None:
            return TokenBucket(rate * part, self._clock, rate)
        budget.retune(rate * part, rate)
        return budget
