"""Whoever keeps more of a request than numbers: the payload log, and spans. Off unless configured."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from prometheus_client.core import Metric

from gateway import plugins
from gateway.config import Config, ConfigError
from gateway.payloadlog import PayloadLog
from gateway.trace import Trace
from gateway.types import Call, Reply


class Spans(Protocol):
    """What gateway.tracing offers; without traces it is not even imported."""

    def begin(self, head: Call, trace: Trace) -> None:
        """A request has come."""

    def end(self, trace: Trace) -> None:
        """It is over, and has been counted."""

    async def close(self) -> None:
        """Send what is left."""


class Recorders:
    """Those that are configured, asked at the beginning, the answer and the end of each request."""

    def __init__(self, payloads: PayloadLog | None = None, spans: Spans | None = None) -> None:
        self.payloads = payloads
        self.spans = spans

    def prepare(self) -> None:
        """Make the folder of payloads. Raises ConfigError if it cannot be had."""
        if self.payloads is not None:
            self.payloads.prepare()

    def begin(self, head: Call, trace: Trace) -> None:
        """A request has come."""
        if self.spans is not None:
            self.spans.begin(head, trace)

    def answered(self, head: Call, body: bytes, reply: Reply, trace: Trace) -> Reply:
        """The reply is known; of a streamed one, its beginning. It is the one that is returned that is to be sent."""
        return reply if self.payloads is None else self.payloads.note(head, body, reply, trace)

    def end(self, trace: Trace) -> None:
        """It is over, and has been counted."""
        if self.spans is not None:
            self.spans.end(trace)

    async def run(self) -> None:
        """Write what gathers, until cancelled."""
        if self.payloads is not None:
            await self.payloads.run()

    async def close(self) -> None:
        """Send what is left, after the last request."""
        if self.spans is not None:
            await self.spans.close()

    def collect(self) -> Iterator[Metric]:
        """What they did, as metrics."""
        if self.payloads is not None:
            yield from self.payloads.collect()


def recorders(config: Config, base: Path) -> Recorders | None:
    """As configured; None for none. Raises ConfigError."""
    payloads = PayloadLog(config.payload_log, base) if config.payload_log.dir else None
    endpoint = config.telemetry.endpoint
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"telemetry.endpoint: expected a URL as http://localhost:4318/v1/traces, got {endpoint!r}")
    spans = plugins.load_tracing().Spans(config.telemetry) if endpoint else None
    return Recorders(payloads, spans) if payloads or spans else None
