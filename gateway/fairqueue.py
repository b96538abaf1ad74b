"""Who is next: each key that waits gets its share of the time, however much another one asks for."""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class _Line(Generic[T]):
    """One key's items, and the seconds that it has had."""

    __slots__ = ("items", "running", "spent")

    def __init__(self, spent: float) -> None:
        self.items: deque[T] = deque()
        self.running = 0
        self.spent = spent


class FairQueue(Generic[K, T]):
    """Items in lines by key; next is the first of the key that has had the least time.

    A key is charged the mean when its turn comes, and what it really took when it is done. Who was away starts level
    with whoever is served then: nobody saves time up. Nothing is kept of a key of which nothing waits or runs.
    """

    def __init__(self) -> None:
        self._lines: dict[K, _Line[T]] = {}
        self._level = 0.0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def ahead(self, key: K) -> int:
        """How many turns come before that of a new item of the key, as far as can be told."""
        line = self._lines.get(key)
        own = len(line.items) if line else 0
        return sum(min(len(other.items), own + 1) for name, other in self._lines.items() if name != key) + own

    def push(self, key: K, item: T) -> None:
        """Wait."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._level)
        line.items.append(item)
        self._size += 1

    def pop(self, mean: float) -> tuple[K, T]:
        """The next one, whose key is charged `mean` seconds for now; `done` must follow."""
        key, line = min(((k, one) for k, one in self._lines.items() if one.items), key=lambda pair: pair[1].spent)
        self._level = max(self._level, line.spent)
        line.spent += mean
        line.running += 1
        self._size -= 1
        return key, line.items.popleft()

    def done(self, key: K, seconds: float) -> None:
        """One that was popped is over; it took so much more than it was charged."""
        line = self._lines[key]
        line.spent += seconds
        line.running -= 1
        self._forget(key, line)

    def remove(self, key: K, item: T) -> bool:
        """Take it out of its line; False if it is not there."""
        line = self._lines.get(key)
        if line is None or item not in line.items:
            return False
        line.items.remove(item)
        self._size -= 1
        self._forget(key, line)
        return True

    def longest(self, key: K) -> K | None:
        """The key with the longest line, if that is longer than the key's would be with one item more."""
        longest, line = max(self._lines.items(), key=lambda pair: len(pair[1].items), default=(key, None))
        own = self._lines.get(key)
        return None if line is None or len(line.items) <= (len(own.items) if own else 0) + 1 else longest

    def drop_last(self, key: K) -> T:
        """Take the last item out of the key's line."""
        line = self._lines[key]
        item = line.items.pop()
        self._size -= 1
        self._forget(key, line)
        return item

    def _forget(self, key: K, line: _Line[T]) -> None:
        if not line.items and not line.running:
            del self._lines[key]
