"""The life of a model's versions as plain bookkeeping: what answers, what is to be loaded, what may go.

START -> LOADING -> AVAILABLE -> UNLOADING -> END. Files that change in place are loaded beside the version that
answers, which stays AVAILABLE. What fails to load ends with its error and is tried again once its files change.
"""

import asyncio

from msgspec.structs import replace

from gateway.errors import LoadFailed, OutOfMemory
from gateway.interfaces import Backend, Taskless
from gateway.repository import ModelFolder, VersionFolder
from gateway.types import ModelStatus, ResponseForm, State, VersionStatus

Failure = LoadFailed | OutOfMemory
"""Why a version could not be loaded; its text is safe to show."""

ENDED_KEPT = 8
"""Versions that are gone and still told of; the list must not grow with every release."""


class Loaded:
    """A version that answers. Whoever runs it holds it between `acquire` and `release`, all on one event loop."""

    __slots__ = (
        "_drained",
        "backend",
        "fingerprint",
        "in_flight",
        "load_seconds",
        "metadata",
        "needs_no_task",
        "version",
    )

    def __init__(
        self, version: int, backend: Backend, fingerprint: str, load_seconds: float, response: ResponseForm
    ) -> None:
        self.version = version
        self.backend = backend
        self.metadata = replace(backend.metadata, response=response)
        self.fingerprint = fingerprint
        self.load_seconds = load_seconds
        self.needs_no_task = isinstance(backend, Taskless) and backend.needs_no_task
        self.in_flight = 0
        self._drained = asyncio.Event()

    def acquire(self) -> None:
        """One more request runs on it; no await may lie between resolving a version and acquiring it."""
        self.in_flight += 1

    def release(self) -> None:
        """That request is over, however it ended."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self._drained.set()

    async def drain(self, seconds: float) -> int:
        """Wait until no request runs on it, at most so long; returns how many still do."""
        self._drained.clear()
        if self.in_flight:
            try:
                async with asyncio.timeout(seconds):
                    await self._drained.wait()
            except TimeoutError:
                pass
        return self.in_flight


class _Version:
    """What is remembered of one version."""

    def __init__(self) -> None:
        self.serving: Loaded | None = None
        self.loading = False
        self.draining = 0
        self.failed_fingerprint = ""
        self.failure: Failure | None = None

    @property
    def over(self) -> bool:
        return self.serving is None and not self.loading and not self.draining


class Book:
    """One model's versions, and the folder they are to follow. Nothing here waits or does I/O."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder: ModelFolder | None = None
        """None once the model has vanished from disk."""
        self._versions: dict[int, _Version] = {}

    @property
    def wanted(self) -> tuple[int, ...]:
        return self.folder.wanted if self.folder else ()

    @property
    def over(self) -> bool:
        """Vanished from disk, and nothing of it is left."""
        return self.folder is None and all(version.over for version in self._versions.values())

    @property
    def complete(self) -> bool:
        """Every wanted version answers."""
        return all((known := self._versions.get(number)) and known.serving for number in self.wanted)

    def serving(self) -> dict[int, Loaded]:
        """The versions that answer, newest first."""
        found = {number: version.serving for number, version in self._versions.items() if version.serving}
        return dict(sorted(found.items(), reverse=True))

    # What is to be done...

    def due(self) -> VersionFolder | None:
        """The newest version to load now: wanted, on disk, and neither loaded nor failed as it lies there."""
        for number in self.wanted:
            if self._is_due(number) and self.folder:
                return self.folder.versions[number]
        return None

    def lacking(self, folder: ModelFolder) -> list[VersionFolder]:
        """The versions that would be loaded, newest first, if that were the folder."""
        before, self.folder = self.folder, folder
        found = [folder.versions[number] for number in folder.wanted if self._is_due(number)]
        self.folder = before
        return found

    def surplus(self) -> list[Loaded]:
        """The versions that may go: not wanted, and one that is wanted answers, or none is wanted any more."""
        serving = self.serving()
        wanted = set(self.wanted)
        if wanted and not wanted & serving.keys():
            return []
        return [loaded for number, loaded in serving.items() if number not in wanted]

    def _is_due(self, number: int) -> bool:
        on_disk = self.folder.versions.get(number) if self.folder and not self.folder.problem else None
        if on_disk is None:
            return False
        known = self._versions.get(number)
        if known is None:
            return True
        answered = known.serving.fingerprint if known.serving else ""
        return on_disk.fingerprint not in (answered, known.failed_fingerprint)

    # What has been done...

    def load_begins(self, number: int) -> None:
        self._versions.setdefault(number, _Version()).loading = True

    def load_failed(self, folder: VersionFolder, failure: Failure) -> None:
        known = self._versions[folder.version]
        known.loading = False
        known.failed_fingerprint, known.failure = folder.fingerprint, failure

    def load_dropped(self, number: int) -> None:
        """The load was for nothing: whatever answered before still does."""
        self._versions[number].loading = False

    def load_done(self, loaded: Loaded) -> Loaded | None:
        """From now on it answers; returns the one whose place it takes."""
        known = self._versions[loaded.version]
        known.loading = False
        known.failed_fingerprint, known.failure = "", None
        replaced, known.serving = known.serving, loaded
        known.draining += replaced is not None
        return replaced

    def retire(self, loaded: Loaded) -> None:
        """From now on it does not answer."""
        known = self._versions[loaded.version]
        known.serving = None
        known.draining += 1

    def closed(self, number: int) -> None:
        """One that drained is gone."""
        self._versions[number].draining -= 1

    # What is told of it...

    def trim(self) -> None:
        """Forget all but the last few versions that ended."""
        wanted = set(self.wanted)
        ended = [number for number, known in self._versions.items() if known.over and number not in wanted]
        for number in ended[:-ENDED_KEPT]:
            del self._versions[number]

    def status(self) -> ModelStatus:
        """The wanted versions and all that are remembered, newest first."""
        versions = sorted(self._versions.keys() | set(self.wanted), reverse=True)
        told = tuple(
            VersionStatus(number, self._state(number), str(self._failure(number) or "")) for number in versions
        )
        return ModelStatus(self.name, told, self.folder.config.labels if self.folder else {})

    def failure(self) -> Failure | None:
        """Why the newest version that could not be loaded could not."""
        versions = sorted(self._versions.keys() | set(self.wanted), reverse=True)
        return next((failure for number in versions if (failure := self._failure(number))), None)

    def _state(self, number: int) -> State:
        known = self._versions.get(number)
        if known and known.serving:
            return "AVAILABLE"
        if known and known.loading:
            return "LOADING"
        if number in self.wanted and self._is_due(number):
            return "START"
        return "UNLOADING" if known and known.draining else "END"

    def _failure(self, number: int) -> Failure | None:
        known = self._versions.get(number)
        if self.folder is None or number not in self.wanted:
            return known.failure if known else None
        if self.folder.problem:
            return LoadFailed(self.folder.problem)
        on_disk = self.folder.versions.get(number)
        if on_disk is None:
            return LoadFailed(f"model.toml lists version {number}, but the model has no folder of that number")
        return known.failure if known and known.failed_fingerprint == on_disk.fingerprint else None
