"""The life of one loaded version: it answers, it drains, it is closed."""

import asyncio

from gateway.interfaces import Backend
from gateway.types import ModelMetadata


class Loaded:
    """A version that answers. Whoever runs it holds it between `acquire` and `release`, all on one event loop."""

    __slots__ = ("_drained", "backend", "fingerprint", "in_flight", "load_seconds", "metadata", "version")

    def __init__(self, version: int, backend: Backend, fingerprint: str = "", load_seconds: float = 0.0) -> None:
        self.version = version
        self.backend = backend
        self.metadata: ModelMetadata = backend.metadata
        self.fingerprint = fingerprint
        self.load_seconds = load_seconds
        self.in_flight = 0
        self._drained: asyncio.Event | None = None

    def acquire(self) -> None:
        """One more request runs on it; no await may lie between resolving a version and acquiring it."""
        self.in_flight += 1

    def release(self) -> None:
        """That request is over, however it ended."""
        self.in_flight -= 1
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    async def drain(self, seconds: float) -> int:
        """Wait until no request runs on it, at most so long; returns how many still do."""
        if self.in_flight:
            self._drained = asyncio.Event()
            try:
                async with asyncio.timeout(seconds):
                    await self._drained.wait()
            except TimeoutError:
                pass
        return self.in_flight
