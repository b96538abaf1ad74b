"""How a version of a model stands, in short: what the metrics, the status page and the terminal show."""

from msgspec import Struct

from gateway.types import State


class VersionSummary(Struct, frozen=True):
    """One version on one line."""

    name: str
    version: int
    state: State
    provider: str = ""
    note: str = ""
    fallbacks: int = 0
    load_seconds: float = 0.0
    signatures: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    error: str = ""
