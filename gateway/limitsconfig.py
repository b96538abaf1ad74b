"""What may be used of the gateway: by one request, by a service's callers, by all clients together."""

from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Rate = Annotated[float, Meta(ge=0, le=1e12)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Milliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]

MiB = 1 << 20


class KeyLimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A `limits.key` table: what each key may use of a service; 0 sets no bound."""

    requests_per_second: Rate = 0.0
    rows_per_second: Rate = 0.0
    bytes_per_second: Rate = 0.0
    concurrency: Count = 0
    """Requests that wait or run at the same time."""


class ServiceLimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[services.NAME.limits]`, and `[limits.service]` for what a service does not say itself; 0 sets no bound."""

    requests_per_second: Rate | None = None
    rows_per_second: Rate | None = None
    bytes_per_second: Rate | None = None
    concurrency: Count | None = None
    """Requests that run at the same time."""
    queue: Count | None = None
    """Requests that may wait for one of those to end."""
    deadline_ms: Milliseconds | None = None
    """How long a request may take whose caller names no deadline."""
    max_deadline_ms: Milliseconds | None = None
    """The longest deadline that a caller may name."""
    key: KeyLimitsConfig | None = None


class ServiceLimits(Struct, frozen=True):
    """What holds for one service once everything is said; 0 sets no bound."""

    requests_per_second: float = 0.0
    rows_per_second: float = 0.0
    bytes_per_second: float = 0.0
    concurrency: int = 1024
    queue: int = 1024
    deadline_ms: int = 0
    max_deadline_ms: int = 0
    key: KeyLimitsConfig = KeyLimitsConfig()


def resolved(*tables: ServiceLimitsConfig) -> ServiceLimits:
    """What the tables say together; of a key the first that gives it counts."""
    said = {
        name: value
        for table in reversed(tables)
        for name in table.__struct_fields__
        if (value := getattr(table, name)) is not None
    }
    return ServiceLimits(**said)


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[limits]` table: what one request may cost before it is refused, and what all may together."""

    body_bytes: Positive = 64 * MiB
    """As sent, and again once a content coding is undone."""
    body_chunks: Positive = 65_536
    body_seconds: Seconds = 60.0
    """From the end of the headers to the end of the body."""
    elements: Positive = 16 * MiB
    """Values in all the tensors of a request."""
    json_depth: Annotated[int, Meta(ge=8, le=1000)] = 254
    output_bytes: Positive = 256 * MiB
    """The tensors of one answer."""
    service: ServiceLimitsConfig = ServiceLimitsConfig()
