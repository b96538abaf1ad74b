"""The payload log: a share of the requests with their answers, in bounded files, written off the event loop."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import random
from typing import BinaryIO

import msgspec
from prometheus_client.core import CounterMetricFamily, Metric

from gateway.config import ConfigError, PayloadLogConfig
from gateway.payloadrecord import Content, PayloadRecord, content, kept_headers, kept_query
from gateway.trace import Trace
from gateway.types import Call, Reply

WRITE_SECONDS = 0.25
PENDING_BYTES = 32 << 20
"""Bodies that wait to be written; more are dropped and counted."""
SUFFIX = ".jsonl"

log = logging.getLogger("tensorgate.payloads")

Make = Callable[[], PayloadRecord]


class PayloadLog:
    """Takes requests on the event loop, and writes them on a thread."""

    def __init__(self, config: PayloadLogConfig, base: Path, chance: Callable[[], float] = random) -> None:
        self._config = config
        self._services = frozenset(config.services)
        self._chance = chance
        self._files = _Files(base / config.dir, config.file_bytes, config.total_bytes)
        self._pending: list[Make] = []
        self._pending_bytes = 0
        self.written = 0
        self.dropped = 0

    def prepare(self) -> None:
        """Make the folder. Raises ConfigError."""
        self._files.prepare()

    def note(self, head: Call, body: bytes, reply: Reply, trace: Trace) -> None:
        """Keep the request if it is one of the share; `body` is as the client sent it."""
        if not trace.service or (self._services and trace.service not in self._services):
            return
        if self._chance() >= self._config.sample:
            return
        answer = reply.body if isinstance(reply.body, bytes) else None
        size = len(body) + len(answer or b"")
        if self._pending_bytes + size > PENDING_BYTES:
            self.dropped += 1
            return
        self._pending_bytes += size
        self._pending.append(_later(self._config, datetime.now(UTC), head, body, answer, reply, trace))

    async def run(self) -> None:
        """Write what gathers, until cancelled; then write the rest."""
        try:
            while True:
                await asyncio.sleep(WRITE_SECONDS)
                if self._pending:
                    await asyncio.to_thread(self._write, self._taken())
        finally:
            self._write(self._taken())
            self._files.close()

    def collect(self) -> Iterator[Metric]:
        """How many were written, and how many could not be."""
        records = CounterMetricFamily("tensorgate_payload_records", "Requests for the payload log", labels=["result"])
        records.add_metric(["written"], self.written)
        records.add_metric(["dropped"], self.dropped)
        yield records

    def _taken(self) -> list[Make]:
        taken, self._pending, self._pending_bytes = self._pending, [], 0
        return taken

    def _write(self, makes: list[Make]) -> None:
        for make in makes:
            try:
                self._files.write(msgspec.json.encode(make()) + b"\n")
                self.written += 1
            except Exception as error:
                if not self.dropped:
                    log.error("the payload log cannot be written: %s", getattr(error, "strerror", None) or error)
                self.dropped += 1


def _later(
    config: PayloadLogConfig, time: datetime, head: Call, body: bytes, answer: bytes | None, reply: Reply, trace: Trace
) -> Make:
    """How the record is made on the thread, of what must be read now."""
    seconds, most, redact = trace.elapsed(), config.max_bytes, frozenset(config.redact)
    status, media_type = reply.status, reply.media_type  # the reply itself may hold a stream

    def make() -> PayloadRecord:
        return PayloadRecord(
            time=time,
            id=trace.id,
            method=head.method,
            path=head.raw_path,
            status=status,
            ms=round(seconds * 1e3, 3),
            request=content(body, most, redact),
            answer=Content(cut=True) if answer is None else content(answer, most, redact),
            query=kept_query(head.query),
            headers=kept_headers(head.headers),
            media_type=media_type,
            protocol=trace.protocol,
            service=trace.service,
            operation=trace.operation,
            version=trace.version,
            variant=trace.variant,
        )

    return make


class _Files:
    """A folder of files that are ours, the oldest of which go when they are too many bytes."""

    def __init__(self, folder: Path, file_bytes: int, total_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._total_bytes = total_bytes
        self._out: BinaryIO | None = None
        self._size = 0
        self._number = 0

    def prepare(self) -> None:
        """Make the folder, for its owner only."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"payload_log.dir: {self._folder} cannot be made: {error.strerror}") from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise ConfigError(f"payload_log.dir: {self._folder} cannot be written to")

    def write(self, line: bytes) -> None:
        """Append a line, to a new file where the last is full."""
        if self._out is None or (self._size and self._size + len(line) > self._file_bytes):
            self.close()
            self._make_room()
            self._out = self._next()
        self._out.write(line)
        self._out.flush()
        self._size += len(line)

    def close(self) -> None:
        """The next line begins a new file."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def _next(self) -> BinaryIO:
        self._number += 1
        self._size = 0
        name = f"payloads-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{self._number:06}{SUFFIX}"
        return os.fdopen(os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _make_room(self) -> None:
        """Delete the oldest files until a whole new one fits the total."""
        ours = sorted((path.stat().st_mtime_ns, path) for path in self._folder.glob(f"payloads-*{SUFFIX}"))
        total = sum(path.stat().st_size for _, path in ours)
        for _, path in ours:
            if total + self._file_bytes <= self._total_bytes:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)
