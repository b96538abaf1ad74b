"""Budgets of many processes: each has the part of a service's limits, or a key's, that its requests ask for.

All parts of a budget make one together. They follow what was asked a tenth of a second ago, so that together the
processes grant what the limit says, and beyond it no more than one place and one request for each process.
"""

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

Member = TypeVar("Member")

SLICE_SECONDS = 0.1
"""For how long a part is had."""
MOST_BUDGETS = 4096
"""Beyond, a budget is shared equally."""
_KEPT = 0.6
"""Of what was asked a slice before."""
_SPARE = 0.02
"""What a process keeps that nobody asks, so that a first request needs no part to be dealt."""
_LEAST = 0.01


def name_of(service: str, key: bytes = b"") -> str:
    """What processes call a service's budgets, or those of one key of it."""
    return f"{service}/{key.hex()}"


class Parts(Generic[Member]):
    """Deals them out."""

    def __init__(self) -> None:
        self._news: dict[Member, dict[str, float]] = {}
        self._asked: dict[Member, dict[str, float]] = {}
        self._dealt: dict[Member, dict[str, float]] = {}

    def ask(self, member: Member, asked: Mapping[str, float]) -> None:
        """A process has had so many requests for each budget since it last said so."""
        news = self._news.setdefault(member, {})
        for name, count in asked.items():
            news[name] = news.get(name, 0.0) + count

    def deal(self, members: Collection[Member]) -> dict[Member, dict[str, float]]:
        """A slice is over: the parts of those for whom they have changed; what is not named is shared equally."""
        asked = {member: self._followed(member) for member in members}
        self._asked, self._news = asked, {}
        totals: dict[str, float] = {}
        for one in asked.values():
            for name, count in one.items():
                if name in totals or len(totals) < MOST_BUDGETS:
                    totals[name] = totals.get(name, 0.0) + count
        whole = 1.0 + _SPARE * len(members)
        dealt = {
            member: {name: (one.get(name, 0.0) / total + _SPARE) / whole for name, total in totals.items()}
            for member, one in asked.items()
        }
        changed = {member: one for member, one in dealt.items() if one != self._dealt.get(member, {})}
        self._dealt = dealt
        return changed

    def _followed(self, member: Member) -> dict[str, float]:
        before, news = self._asked.get(member, {}), self._news.get(member, {})
        counts = {name: _KEPT * before.get(name, 0.0) + news.get(name, 0.0) for name in before.keys() | news.keys()}
        return {name: count for name, count in counts.items() if count > _LEAST}
