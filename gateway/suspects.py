"""Who sends wrong keys: counted by address, in a table that never grows, so that nothing is kept of a key."""

from collections import OrderedDict
from time import monotonic

from gateway.budgets import Clock, TokenBucket
from gateway.errors import RateLimited

MOST_ADDRESSES = 1024


class Suspects:
    """Addresses whose calls were refused for their keys lately."""

    def __init__(self, per_second: float, clock: Clock = monotonic) -> None:
        self._rate = per_second
        self._clock = clock
        self._budgets: OrderedDict[str, TokenBucket] = OrderedDict()

    def note(self, address: str) -> RateLimited | None:
        """One more; the error to answer it with once there are too many."""
        if not self._rate:
            return None
        network = network_of(address)
        budget = self._budgets.get(network)
        if budget is None:
            if len(self._budgets) >= MOST_ADDRESSES:
                self._budgets.popitem(last=False)
            budget = self._budgets[network] = TokenBucket(self._rate, self._clock)
        self._budgets.move_to_end(network)
        seconds = budget.take(1)
        return RateLimited("too many calls without a valid key come from this address", seconds) if seconds else None


def network_of(address: str) -> str:
    """The address, or the /64 that an IPv6 address lies in: one client has all of that."""
    return ":".join(address.split(":")[:4]) if ":" in address else address
