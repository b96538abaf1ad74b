"""How a pool of workers is run."""

from msgspec import Struct


class Settings(Struct, frozen=True):
    """How a pool is run."""

    replicas: int = 1
    answer_seconds: float | None = None
    """For an answer, or for each part of a streamed one."""
    most_waiting: int = 256
    retry: bool = True
    """Whether a call is made once more if the worker ended that was busy with it."""
    memory_bytes: int = 0
    start_seconds: float = 120.0
    at_once: int = 0
    """Calls that a worker answers side by side; 0 for one whose calls follow one another."""
