"""Which of a service's two deployments answers: what the caller wishes, else the weight, exactly and without chance."""

import logging
from collections.abc import Container
from typing import Literal

from gateway.errors import InvalidHeader
from gateway.types import Call

Variant = Literal["", "stable", "canary"]
"""Empty for a service that has no canary."""

STABLE: Variant = "stable"
CANARY: Variant = "canary"

_HEADER = b"canary"
_WISHES: dict[str, Variant] = {"always": CANARY, "never": STABLE}

log = logging.getLogger("tensorgate.canary")


def wish(call: Call) -> Variant:
    """The variant that the header `Canary` names, empty without one. Raises InvalidHeader for what it cannot be."""
    said = call.header(_HEADER)
    if said is None:
        return ""
    found = _WISHES.get(said.strip().lower())
    if found is None:
        raise InvalidHeader(f"the header Canary must be Always or Never, got {said[:32]!r}")
    return found


class Turns:
    """The requests of one service, counted for its weights; outlives every change of the configuration."""

    __slots__ = ("_canary", "_missed", "_shadow")

    def __init__(self) -> None:
        self._canary = 0
        self._shadow = 0
        self._missed = ""

    def canary(self, weight: int) -> bool:
        """Whether the next request is the canary's."""
        due, self._canary = _due(self._canary, weight)
        return due

    def shadow(self, percent: int) -> bool:
        """Whether the next request is copied to the canary."""
        due, self._shadow = _due(self._shadow, percent)
        return due

    def miss(self, service: str, reason: str) -> None:
        """The canary could not take its turn; the log has each new reason once."""
        if reason != self._missed:
            log.warning("services.%s.canary: the stable deployment answers in its place: %s", service, reason)
        self._missed = reason


class TurnsOfAll:
    """The turns of every service that has a canary."""

    def __init__(self) -> None:
        self._turns: dict[str, Turns] = {}

    def of(self, service: str) -> Turns:
        """The service's turns, which begin with its first request."""
        turns = self._turns.get(service)
        if turns is None:
            turns = self._turns[service] = Turns()
        return turns

    def keep(self, services: Container[str]) -> None:
        """Forget those of other services."""
        self._turns = {name: turns for name, turns in self._turns.items() if name in services}


def _due(before: int, percent: int) -> tuple[bool, int]:
    """Whether request number `before` is among the percent, and the next number.

    After any number n of requests, floor(n * percent / 100) were; the pattern repeats after 100.
    """
    after = before + 1
    return after * percent // 100 > before * percent // 100, after % 100
