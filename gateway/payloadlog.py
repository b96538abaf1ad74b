"""The payload log: a share of the requests with their answers, in bounded files, written off the event loop."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import random
from typing import BinaryIO

import msgspec
from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, Metric

from gateway.config import ConfigError, PayloadLogConfig
from gateway.interfaces import GRPC, GRPC_STATUS, WEBSOCKET
from gateway.payloadrecord import Content, Ending, PayloadRecord, content, kept_headers, kept_query, streamed
from gateway.recorded import Recorded
from gateway.trace import Trace
from gateway.types import Call, Reply

WRITE_SECONDS = 0.25
PENDING_BYTES = 32 << 20
"""Bodies that wait to be written; more are dropped and counted."""
SUFFIX = ".jsonl"

log = logging.getLogger("tensorgate.payloads")

Make = Callable[[], PayloadRecord]
Record = Callable[[Callable[[int, Collection[str]], Content]], PayloadRecord]
"""Makes the record with what makes its answer, of at most so many bytes and without the values of those fields."""


class PayloadLog:
    """Takes requests on the event loop, and writes them on a thread."""

    def __init__(self, config: PayloadLogConfig, base: Path, chance: Callable[[], float] = random) -> None:
        self._config = config
        self._services = frozenset(config.services)
        self._chance = chance
        self._files = _Files(base / config.dir, config.file_bytes, config.total_bytes)
        self._pending: list[Make] = []
        self._pending_bytes = 0
        self._open = 0
        """Answers in parts that are on their way."""
        self.written = 0
        self.dropped = 0

    def prepare(self) -> None:
        """Make the folder. Raises ConfigError."""
        self._files.prepare()

    def note(self, head: Call, body: bytes, reply: Reply, trace: Trace) -> Reply:
        """Keep the request if it is one of the share; `body` is as the client sent it. The reply is the one to send."""
        if not trace.service or (self._services and trace.service not in self._services):
            return reply
        if self._chance() >= self._config.sample:
            return reply
        record = _beginning(self._config, head, body, reply, trace)
        if isinstance(reply.body, bytes):
            answer = reply.body
            self._keep(len(body) + len(answer), lambda: record(lambda most, redact: content(answer, most, redact)))
            return reply
        if (self._open + 1) * self._config.max_bytes > PENDING_BYTES:
            self.dropped += 1
            return reply
        self._open += 1
        return replace(reply, body=self._recorded(head, len(body), reply.body, reply.media_type, record, trace))

    def _recorded(
        self, head: Call, size: int, chunks: AsyncIterator[bytes], media_type: str, record: Record, trace: Trace
    ) -> Recorded:
        """The chunks, of which the record is made at their end."""
        joint = b"\n" if head.method == WEBSOCKET else b""

        def over(kept: bytes, cut: bool, ended: Ending) -> None:
            self._open -= 1
            seconds = trace.elapsed()

            def make() -> PayloadRecord:
                made = record(lambda most, redact: streamed(kept, media_type, most, redact, cut))
                return replace(made, ended=ended, ms=round(seconds * 1e3, 3))

            self._keep(size + len(kept), make)

        return Recorded(chunks, self._config.max_bytes, joint, over)

    def _keep(self, size: int, make: Make) -> None:
        """Have the record written, if there is room for what it is made of."""
        if self._pending_bytes + size > PENDING_BYTES:
            self.dropped += 1
            return
        self._pending_bytes += size
        self._pending.append(make)

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


def _beginning(config: PayloadLogConfig, head: Call, body: bytes, reply: Reply, trace: Trace) -> Record:
    """How the record is made on the thread, once there is an answer, of what must be read now."""
    time, seconds, most, redact = datetime.now(UTC), trace.elapsed(), config.max_bytes, frozenset(config.redact)
    status, media_type = _status(head, reply), reply.media_type  # the reply itself may hold a stream

    def make(answer: Callable[[int, Collection[str]], Content]) -> PayloadRecord:
        return PayloadRecord(
            time=time,
            id=trace.id,
            method=head.method,
            path=head.raw_path,
            status=status,
            ms=round(seconds * 1e3, 3),
            request=content(body, most, redact),
            answer=answer(most, redact),
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


def _status(head: Call, reply: Reply) -> int:
    """HTTP's; of a call over gRPC, gRPC's."""
    if head.method != GRPC:
        return reply.status
    return int(dict(reply.headers).get(GRPC_STATUS, "0" if reply.status == 200 else "2"))


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
