"""What all connections of a port share: how many there may be, what each may cost, and what was refused."""

import contextlib
import resource
from collections import Counter
from time import monotonic

from gateway.limitsconfig import LimitsConfig

MOST = 10_000
SPARE_FILES = 128
"""Left to everything that is no client's connection."""
MOST_FILES = 65_536
LEAST = 16
SHORT_IDLE_SECONDS = 1.0
"""How long a connection may be idle while memory is short."""
_LONELY = 16
"""Requests of one connection, while no other had any, until it is taken to be the only one."""
_SCAN_SECONDS = 0.05
"""Between two searches for a connection that may go."""


class Connections:
    """Bounds and counts of one port's connections."""

    def __init__(self, limits: LimitsConfig) -> None:
        self.limits = limits
        self.most = limits.connections or min(MOST, max(LEAST, _files() - SPARE_FILES))
        self.open = 0
        self.idle_seconds = limits.idle_seconds
        self.refused: Counter[str] = Counter()
        """By reason: what ended before it was anybody's request."""
        self._scanned = 0.0
        self._latest = 0
        self._streak = 0

    def alone(self, connection: int) -> bool:
        """Whether the connection, which has a request now, has been the only one with any for a while."""
        if connection != self._latest:
            self._latest, self._streak = connection, 0
        self._streak += 1
        return self._streak > _LONELY

    def may_scan(self) -> bool:
        """Whether it is time to look through all of them; a flood must not make that happen all the time."""
        now = monotonic()
        if now - self._scanned < _SCAN_SECONDS:
            return False
        self._scanned = now
        return True

    def shorten(self, short: bool) -> None:
        """Keep idle connections but for a moment, or as long as configured."""
        self.idle_seconds = min(SHORT_IDLE_SECONDS, self.limits.idle_seconds) if short else self.limits.idle_seconds


def allow_files() -> None:
    """Let this process open as many files as it is allowed to ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _files():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (_files(), hard))


def _files() -> int:
    """What `allow_files` brings about."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
