"""What is told of requests beside metrics and access log: the `[payload_log]` and `[telemetry]` tables."""

from typing import Annotated

from msgspec import Meta, Struct

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[int, Meta(ge=1)]


class PayloadLogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[payload_log]` table: requests and answers kept, to be looked at or replayed."""

    dir: str = ""
    """A folder, relative to the file; empty means that nothing is kept."""
    sample: Share = 1.0
    """The share of requests that is kept."""
    services: tuple[str, ...] = ()
    """Those whose requests are kept; empty means all."""
    max_bytes: Positive = 65536
    """Of a request's body, and of an answer's; longer ones are cut."""
    redact: tuple[str, ...] = ()
    """Fields of JSON bodies, at any depth, whose values are not kept."""
    file_bytes: Positive = 64 << 20
    """After which the next file begins."""
    total_bytes: Positive = 1 << 30
    """Of all files, the oldest of which go."""


class TelemetryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[telemetry]` table: OpenTelemetry traces."""

    endpoint: str = ""
    """Where a collector takes OTLP over HTTP, e.g. "http://localhost:4318/v1/traces"; empty means no traces."""
    headers: dict[str, str] = {}
    """Sent to the collector."""
    sample: Share = 1.0
    """The share of requests that are traced; a caller's traceparent has the last word."""
    service_name: str = "tensorgate"
