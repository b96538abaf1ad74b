"""What is loaded: versions come, serve, drain and go, while requests read an immutable snapshot."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from gateway.errors import LabelNotFound, ModelNotFound
from gateway.interfaces import Device
from gateway.lifecycle import Loaded
from gateway.types import ModelStatus, State

DRAIN_SECONDS = 60.0


class LoadedModel(Struct, frozen=True):
    """A model as it stands now: never changed, only replaced."""

    name: str
    status: ModelStatus
    versions: dict[int, Loaded] = {}
    """Those that take requests; `status` also tells of the others."""
    labels: dict[str, int] = {}
    """As model.toml says; a label of a version that does not serve is kept, but does not resolve."""
    latest: Loaded | None = None
    """The highest version that takes requests."""

    def version(self, number: int) -> Loaded | None:
        """That version, if it takes requests."""
        return self.versions.get(number)

    def resolve(self, version: int | None = None, label: str | None = None) -> Loaded:
        """The version meant: by label, by number, else the latest. Raises LabelNotFound or ModelNotFound."""
        raise NotImplementedError


class VersionSummary(Struct, frozen=True):
    """One version on one line, for a status page or a terminal."""

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


class Models:
    """The models under the roots, loaded and kept in step with the disk."""

    def __init__(
        self,
        roots: Sequence[Path],
        device: Device = "auto",
        *,
        drain_seconds: float = DRAIN_SECONDS,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.roots = tuple(roots)
        self.device = device
        self.drain_seconds = drain_seconds
        self._on_change = on_change
        self._models: dict[str, LoadedModel] = {}

    @property
    def ready(self) -> bool:
        """Every model known at start has become available; later failures do not undo it."""
        raise NotImplementedError

    @property
    def problems(self) -> dict[str, str]:
        """Folder name to why what lies there is not served as it stands; for the operator, not for clients."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """The models on disk and those still going, in alphabetical order."""
        return sorted(self._models)

    def get(self, name: str) -> LoadedModel | None:
        """The model as it stands now."""
        return self._models.get(name)

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> Loaded:
        """The version that answers; raises LabelNotFound for an unknown label, else ModelNotFound."""
        model = self._models.get(name)
        if model is not None:
            return model.resolve(version, label)
        if label is not None:
            raise LabelNotFound(f"there is no model {name!r}, so it has no label {label!r}", name, label)
        raise ModelNotFound(f"there is no model {name!r}", name, version)

    def describe(self) -> list[VersionSummary]:
        """Every tracked version of every model."""
        raise NotImplementedError

    async def start(self) -> None:
        """Load everything wanted, each model on its own: a model's failure is recorded, not raised.

        Requests may be served meanwhile. Raises ConfigError if a root cannot be read.
        """
        raise NotImplementedError

    async def watch(self, poll_seconds: float) -> None:
        """Look at the disk again and again until cancelled; run it as a task after `start`."""
        while True:
            await asyncio.sleep(poll_seconds)
            await self.look()

    async def look(self) -> None:
        """Scan once and begin what follows from it, without waiting for loads."""
        raise NotImplementedError

    async def refresh(self) -> None:
        """Scan once and wait until what follows from it is loaded; old versions may still drain."""
        raise NotImplementedError

    async def close(self) -> None:
        """Take no more requests, drain, free everything; a load in progress is cancelled."""
        raise NotImplementedError
