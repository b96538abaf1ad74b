"""What may be used of the gateway: by one request, by a service's callers, by all clients together."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Rate = Annotated[float, Meta(ge=0, le=1e12)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Percent = Annotated[float, Meta(gt=0, le=100)]
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
    keys: Mapping[str, KeyLimitsConfig] = {}
    """By id: those of keys that have limits of their own, in the place of `key`."""


def resolved(*tables: ServiceLimitsConfig) -> ServiceLimits:
    """What the tables say together; of a key the first that gives it counts."""
    said = {
        name: value
        for table in reversed(tables)
        for name in table.__struct_fields__
        if (value := getattr(table, name)) is not None
    }
    return ServiceLimits(**said)


class MemoryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[limits.memory]` table: what is refused while memory is short, in three stages."""

    watch: bool = True
    limit_bytes: Annotated[int, Meta(ge=0)] = 0
    """What the process may use; 0 means the container's limit, or what the machine has left."""
    shorten_percent: Percent = 85.0
    """From here on idle connections are closed soon."""
    refuse_large_percent: Percent = 92.0
    """From here on bodies of more than `large_bytes` are refused."""
    refuse_percent: Percent = 95.0
    """From here on everything is, but for health."""
    large_bytes: Positive = MiB
    seconds: Seconds = 0.5
    """Between two looks."""

    def __post_init__(self) -> None:
        if not self.shorten_percent <= self.refuse_large_percent <= self.refuse_percent:
            raise ValueError("expected shorten_percent <= refuse_large_percent <= refuse_percent")


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[limits]` table: what one request may cost before it is refused, and what all may together."""

    body_bytes: Positive = 64 * MiB
    """As sent, and again once a content coding is undone."""
    body_chunks: Positive = 65_536
    body_seconds: Seconds = 60.0
    """From the end of the headers to the end of the body."""
    bodies_bytes: Positive = 512 * MiB
    """All bodies that are being received or worked on."""
    elements: Positive = 16 * MiB
    """Values in all the tensors of a request."""
    json_depth: Annotated[int, Meta(ge=8, le=1000)] = 254
    output_bytes: Positive = 256 * MiB
    """The tensors of one answer."""
    head_bytes: Annotated[int, Meta(ge=1024, le=16 * MiB)] = 64 * 1024
    head_headers: Annotated[int, Meta(ge=8, le=10_000)] = 200
    head_seconds: Seconds = 20.0
    """From a connection's start, or a head's first byte, to the head's end."""
    stall_seconds: Seconds = 20.0
    """How long a client may take nothing at all of an answer that waits for it."""
    idle_seconds: Seconds = 5.0
    """How long a connection may stay open between two requests."""
    pipelined: Positive = 256
    """Requests that may wait on one connection."""
    connections: Annotated[int, Meta(ge=0)] = 0
    """Open at the same time; 0 means as many as the process may have files, less 128, at most 10,000."""
    wrong_keys_per_second: Rate = 100.0
    """From one address; 0 sets no bound."""
    service: ServiceLimitsConfig = ServiceLimitsConfig()
    memory: MemoryConfig = MemoryConfig()
