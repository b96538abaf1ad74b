"""The access log: one line a request."""

import asyncio
import sys
from collections import deque
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec
from msgspec import Struct

from gateway.trace import Trace


class AccessLine(Struct, frozen=True, omit_defaults=True):
    """One line of the access log; no payload, no query, no key is ever in it."""

    time: datetime
    id: str
    peer: str
    method: str
    path: str
    status: int
    ms: float
    bytes_in: int
    bytes_out: int
    protocol: str = ""
    service: str = ""
    operation: str = ""
    version: int = 0
    variant: str = ""
    key: str = ""


class AccessLog:
    """JSON lines, gathered and written a few times a second from a thread, so that a slow reader stalls nobody."""

    _SECONDS = 0.2
    _MOST = 50_000
    """Lines kept while the output is stuck; the rest are dropped and counted."""
    LATEST = 500
    """Lines that are kept for whoever looks."""

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = out or sys.stderr.buffer
        self._lines: list[bytes] = []
        self.latest: deque[AccessLine] = deque(maxlen=self.LATEST)
        """Oldest first."""
        self._dropped = 0
        self._encoder = msgspec.json.Encoder()

    def add(self, trace: Trace) -> None:
        """Note a finished request that has been counted."""
        line = AccessLine(
            datetime.now(UTC), trace.id, trace.peer, trace.method, trace.path[:256], trace.status,
            int(trace.seconds * 1e6) / 1e3, trace.bytes_in, trace.bytes_out,
            trace.protocol, trace.service or trace.meant, trace.operation, trace.version, trace.variant, trace.key,
        )  # fmt: skip
        self.latest.append(line)
        if len(self._lines) >= self._MOST:
            self._dropped += 1
            return
        # PERF: 1 us here; left to the thread, it would keep the event loop from the interpreter for milliseconds.
        self._lines.append(self._encoder.encode(line))

    async def run(self) -> None:
        """Write what gathers, until cancelled; then write the rest."""
        try:
            while True:
                await asyncio.sleep(self._SECONDS)
                if self._lines:
                    lines, self._lines = self._lines, []
                    await asyncio.to_thread(self._write, lines)
        finally:
            self._write(self._lines)
            self._lines = []

    def _write(self, lines: list[bytes]) -> None:
        """What cannot be written, as to a disk that is full, is dropped and counted like the lines of a stuck log."""
        dropped, self._dropped = self._dropped, 0
        try:
            if dropped:
                self._out.write(b'{"dropped_lines":%d}\n' % dropped)
            self._out.write(b"\n".join([*lines, b""]))
            self._out.flush()
        except OSError:
            self._dropped += dropped + len(lines)
