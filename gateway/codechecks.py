"""Checks of codes that take long: on a thread, one at a time, remembered once they succeed, and rationed.

Nothing is kept of a wrong code. How many may be tried is bounded for each client address, and for all together, so that
guessing costs the guessers and nobody else: a code that was right once is known without any check.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from gateway import keys
from gateway.errors import RateLimited
from gateway.suspects import network_of

PEER_RATE, PEER_BURST = 0.2, 10.0
ALL_RATE, ALL_BURST = 1.0, 20.0
"""Checks a second, and how many may come at once after a while without."""
SLOTS = 1024
"""Client addresses share as many budgets: their number is bounded, whoever asks."""


class Ration:
    """A budget of checks. It may be overdrawn by one request; the next waits for that to be made up for."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until a check may be made; 0 if one may now."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (1.0 - self._left) / self._rate)

    def take(self, checks: float) -> None:
        """Use so many, or give them back if negative."""
        self._left -= checks


class CodeChecks:
    """The slow codes that are known, and the checks under way; outlives every change of the keys."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, str] = {}
        """Keyed digest of a code to its hash: one entry for each slow key at most."""
        self._running: dict[bytes, asyncio.Task[str]] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._all = Ration(ALL_RATE, ALL_BURST, clock())
        self._peers: list[Ration | None] = [None] * SLOTS

    def known(self, code: bytes) -> str:
        """The hash that the code was found to have; empty if it was not."""
        return self._known.get(self._digest(code), "") if self._known else ""

    async def check(self, code: bytes, hashes: Sequence[str], peer: str) -> str:
        """The one of the hashes that is the code's; empty if none is. Raises RateLimited."""
        digest = self._digest(code)
        task = self._running.get(digest)
        if task is None:
            rations = (self._all, self._ration(peer))
            now = self._clock()
            if wait := max(ration.wait(now) for ration in rations):
                raise RateLimited("too many keys that are not known yet are being tried; try again later", wait)
            for ration in rations:
                ration.take(len({keys.salt_of(hashed) for hashed in hashes}))
            task = asyncio.create_task(self._find(digest, code, tuple(hashes), rations))
            self._running[digest] = task
            task.add_done_callback(lambda _: self._running.pop(digest, None))
        return await asyncio.shield(task)

    def keep(self, hashes: Container[str]) -> None:
        """Forget the codes of other keys."""
        self._known = {digest: hashed for digest, hashed in self._known.items() if hashed in hashes}

    async def _find(self, digest: bytes, code: bytes, hashes: Sequence[str], rations: Sequence[Ration]) -> str:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "key checks")
        found = await asyncio.get_running_loop().run_in_executor(self._thread, keys.find, code, hashes)
        if found:
            self._known[digest] = found
            for ration in rations:
                ration.take(-1)
        return found

    def _ration(self, peer: str) -> Ration:
        slot = int.from_bytes(self._digest(network_of(peer).encode())[:4]) % SLOTS
        ration = self._peers[slot]
        if ration is None:
            ration = self._peers[slot] = Ration(PEER_RATE, PEER_BURST, self._clock())
        return ration

    def _digest(self, code: bytes) -> bytes:
        return hmac.digest(self._secret, code, hashlib.sha256)
