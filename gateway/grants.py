"""What a key opens: services, for some operations and protocols, until some moment."""

from collections.abc import Iterable, Iterator
from math import inf

from msgspec import Struct

INFER, DESCRIBE = "infer", "describe"
_OPERATIONS = frozenset({INFER, DESCRIBE})


class Grant(Struct, frozen=True):
    """What a call's credential opens for that call."""

    services: frozenset[str] = frozenset()
    valid: bool = False
    """Whether the credential is one, even if it opens nothing here."""
    narrow: frozenset[str] = frozenset()
    """The services that it opens, but not for such a call."""
    key: str = ""
    """The id of the key, where it has one."""

    def __contains__(self, service: object) -> bool:
        return service in self.services

    def __bool__(self) -> bool:
        return self.valid

    def refusal(self, service: str) -> str:
        """Why the valid credential does not open the service."""
        if service in self.narrow:
            return "this key opens the service, but not for this operation or protocol"
        return "this key does not open the service"


NOTHING = Grant()


class Opening(Struct, frozen=True):
    """One service that a key opens."""

    service: str
    key: str = ""
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    """Unix seconds."""

    def covers(self, protocol: str, operation: str) -> bool:
        """Whether it is for such calls."""
        operations = self.scopes & _OPERATIONS
        protocols = self.scopes - _OPERATIONS
        return (not operations or operation in operations) and (not protocols or protocol in protocols)


class Openings:
    """All that one key opens.

    PERF: until the first of them expires, a protocol's calls of one kind have the same grant, which is made once: 4 us
    a call with a scoped key, not 9.
    """

    __slots__ = ("_all", "_first_end", "_made")

    def __init__(self, openings: Iterable[Opening]) -> None:
        self._all = tuple(openings)
        self._first_end = min((one.expires for one in self._all if one.expires is not None), default=inf)
        self._made: dict[tuple[str, str], Grant] = {}

    def __iter__(self) -> Iterator[Opening]:
        return iter(self._all)

    def grant(self, now: float, protocol: str, operation: str) -> Grant:
        """What the key opens for such a call."""
        if now >= self._first_end:
            return _grant(self._all, now, protocol, operation)
        made = self._made.get((protocol, operation))
        if made is None:
            made = self._made[protocol, operation] = _grant(self._all, now, protocol, operation)
        return made


def _grant(openings: Iterable[Opening], now: float, protocol: str, operation: str) -> Grant:
    """NOTHING once all of the openings have expired."""
    alive = [one for one in openings if one.expires is None or now < one.expires]
    if not alive:
        return NOTHING
    services = frozenset(one.service for one in alive if one.covers(protocol, operation))
    narrow = frozenset(one.service for one in alive) - services
    return Grant(services, True, narrow, next((one.key for one in alive if one.key), ""))
