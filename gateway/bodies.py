"""The bytes of all bodies in the process: bounded together, and given back to the machine once they are gone."""

import asyncio
import contextlib
import ctypes
import sys

from gateway.errors import CapacityError, Overloaded
from gateway.gate import Tally
from gateway.limitsconfig import LimitsConfig

SMALL_BYTES = 64 * 1024
"""Smaller bodies are not counted: the number of connections bounds them."""
TRIM_BYTES = 32 << 20
"""So much at the same time is worth giving back."""
TRIM_SECONDS = 2.0
"""How long there must be no large body before that is done."""


class Bodies:
    """Who wants to bring more than there is room for is told at once."""

    def __init__(self, limits: LimitsConfig, tally: Tally | None = None) -> None:
        self.held = 0
        """Bytes that are here."""
        self.largest = limits.body_bytes
        """The most that a body may have just now; less than ever while memory is short."""
        self._most = limits.bodies_bytes
        self._own_bound = limits.body_bytes
        self._tally = tally or Tally()
        self._peak = 0
        self._trimming: asyncio.TimerHandle | None = None
        self._libc = _libc()

    def check(self, size: int) -> None:
        """Raise Overloaded if a body of that size cannot be had just now."""
        if self.largest < size <= self._own_bound:
            raise self._refuse("memory", "memory is short: large bodies are not taken just now")
        if size > SMALL_BYTES and self.held + size > self._most:
            raise self._no_room()

    def hold(self, size: int) -> None:
        """So much more is here. Raises Overloaded if there is no room for it; it is held all the same."""
        self.held += size
        self._peak = max(self._peak, self.held)
        if self.held > self._most:
            raise self._no_room()

    def free(self, size: int) -> None:
        """So much is gone."""
        self.held -= size
        if self.held == 0:
            self._trim_later()

    def shrink(self, largest: int | None) -> None:
        """Take no larger bodies from now on; None for as large as configured."""
        self.largest = self._own_bound if largest is None else min(largest, self._own_bound)

    def _no_room(self) -> CapacityError:
        return self._refuse("bodies", f"the bodies of other requests fill the {self._most} bytes there are for them")

    def _refuse(self, reason: str, text: str) -> CapacityError:
        self._tally.refused["", reason] += 1
        return Overloaded(text, retry_after=1.0)

    # Giving back...

    def _trim_later(self) -> None:
        peak, self._peak = self._peak, 0
        if peak < TRIM_BYTES or self._libc is None:
            return
        if self._trimming is not None:
            self._trimming.cancel()
        loop = asyncio.get_running_loop()
        self._trimming = loop.call_later(TRIM_SECONDS, loop.run_in_executor, None, self._libc.malloc_trim, 0)


def _libc() -> ctypes.CDLL | None:
    """The C library, if it is one that gives memory back when asked."""
    if not sys.platform.startswith("linux"):
        return None
    with contextlib.suppress(OSError):
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "malloc_trim") else None
    return None
