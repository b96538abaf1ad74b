"""The keys of model.toml that say how a model's worker processes are run."""

from typing import Annotated

from msgspec import Meta, Struct

from backends._pool_settings import Settings

Count = Annotated[int, Meta(ge=0)]


class WorkersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What `[pool]` and `[pyclass]` have in common."""

    replicas: Annotated[int, Meta(ge=1, le=256)] = 1
    memory_mb: Count = 0
    """What one worker may hold; 0 sets no limit."""
    deadline_ms: Count = 60_000
    """For an answer, or for each part of a streamed one; 0 sets none."""
    retry: bool = True
    """Whether a call is made once more if its worker has ended meanwhile."""
    most_waiting: Annotated[int, Meta(ge=1)] = 256
    start_seconds: Annotated[float, Meta(gt=0)] = 120.0
    """How long a worker may take until it is ready."""

    def settings(self, at_once: int = 0) -> Settings:
        """As the pool takes them; `at_once` as in Settings."""
        return Settings(
            replicas=self.replicas,
            answer_seconds=self.deadline_ms / 1000 or None,
            most_waiting=self.most_waiting,
            retry=self.retry,
            memory_bytes=self.memory_mb << 20,
            start_seconds=self.start_seconds,
            at_once=at_once,
        )
