"""Models that are told what to serve: prepared beside what answers, and changed when every process can."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from gateway.lifecycle import Book, Failure, Loaded
from gateway.models import Models
from gateway.needs import NOTHING, Need, asked_of, on_disk
from gateway.orders import Change, Failed
from gateway.repository import ModelFolder, Scan, VersionFolder
from gateway.types import ModelStatus

log = logging.getLogger("tensorgate.models")


class Stage:
    """A change whose versions are loaded and answer nothing yet."""

    def __init__(self, change: Change, needs: Mapping[str, Need]) -> None:
        self.change = change
        self.folders = {
            name: folder and asked_of(folder, needs.get(name, NOTHING))
            for name, folder in (change.models or {}).items()
        }
        """With what the services ask of them."""
        self.loaded: list[tuple[ModelFolder, Loaded]] = []
        self.failures: list[tuple[str, VersionFolder, Failure]] = []

    @property
    def failed(self) -> tuple[Failed, ...]:
        """What could not be loaded."""
        return tuple(told_failure(*one) for one in self.failures)


def told_failure(model: str, version: VersionFolder, failure: Failure) -> Failed:
    """The failure as other processes are told of it."""
    kind = type(failure).__name__
    return Failed(model, version.version, version.fingerprint, str(failure), kind == "OutOfMemory")


class FollowingModels(Models):
    """The models of one process of many. It never looks at the roots itself."""

    _held: dict[str, ModelStatus] | None = None
    """What is told of the models until everybody has made the change."""

    async def stage(self, change: Change, needs: Mapping[str, Need]) -> Stage:
        """Load what the change needs that is not here, as services are going to ask for it."""
        stage = Stage(change, needs)
        known = _known(change.failed)
        tasks = []
        for name, folder in stage.folders.items():
            if folder is None:
                continue
            book = self._books.setdefault(name, Book(name))
            for version in book.lacking(folder):
                failure = _found(known, name, version.version, version.fingerprint)
                if failure is not None:
                    stage.failures.append((name, version, failure))
                    continue
                book.load_begins(version.version)
                tasks.append(asyncio.create_task(self._bring(stage, folder, version)))
            self._publish(book)
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
        return stage

    async def _bring(self, stage: Stage, folder: ModelFolder, version: VersionFolder) -> None:
        async with self._turns:
            loaded = await self._try(folder, version)
        if isinstance(loaded, Loaded):
            stage.loaded.append((folder, loaded))
        else:
            stage.failures.append((folder.name, version, loaded))

    def adopt(self, stage: Stage, failed: Iterable[Failed]) -> None:
        """From now on requests see the change; `tell` has yet to say so."""
        self._held = {name: model.status for name, model in self._snapshot.items()}
        elsewhere = _known(failed)
        change = stage.change
        if change.awaited is not None:
            self._awaited = set(change.awaited) & (set(change.awaited) if self._awaited is None else self._awaited)
        if change.problems is not None:
            self._scan = Scan({}, change.problems, frozenset())
        for name, folder in stage.folders.items():
            self._books.setdefault(name, Book(name)).folder = folder
            self._folders.pop(name, None)
            if (found := (change.models or {})[name]) is not None:
                self._folders[name] = found
        for name, version, failure in stage.failures:
            self._books[name].load_begins(version.version)
            self._books[name].load_failed(version, failure)
        for folder, loaded in stage.loaded:
            book, version = self._books[folder.name], folder.versions[loaded.version]
            other = _found(elsewhere, folder.name, loaded.version, loaded.fingerprint)
            if other is not None:
                book.load_failed(version, other)
                self._close_unused(loaded)
                continue
            replaced = book.load_done(loaded)
            where, seconds = loaded.backend.status.provider, loaded.load_seconds
            log.info("%s version %d: available on %s after %.3f s", book.name, loaded.version, where, seconds)
            if replaced:
                self._drain(book, replaced)
        for name in stage.folders:
            self._retire(self._books[name])

    def tell(self) -> None:
        """Say how the models stand now."""
        self._held = None
        for book in list(self._books.values()):
            if book.over:
                self._forget(book.name)
            else:
                self._publish(book)

    async def watch(self, poll_seconds: float) -> None:
        """Unload what has been idle for too long, again and again; nothing is looked for on the disk."""
        while self.memory is not None:
            await asyncio.sleep(poll_seconds)
            self.memory.sweep()

    def discard(self, stage: Stage) -> None:
        """Let go of what was loaded for a change that is not made."""
        for name, version, _ in stage.failures:
            if name in self._books:
                self._books[name].load_dropped(version.version)
        for folder, loaded in stage.loaded:
            self._books[folder.name].load_dropped(loaded.version)
            self._close_unused(loaded)
        self.tell()

    def _close_unused(self, loaded: Loaded) -> None:
        task = asyncio.create_task(loaded.backend.close(), name="close an unused version")
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)

    def _told(self, book: Book) -> ModelStatus:
        if self._held is None:
            return book.status()
        return self._held.get(book.name) or ModelStatus(book.name, ())

    def _forget(self, name: str) -> None:
        if self._held is None:
            super()._forget(name)


_Known = dict[tuple[str, int, str], Failure]


def _known(failed: Iterable[Failed]) -> _Known:
    return {(one.model, one.version, one.fingerprint): one.failure() for one in failed}


def _found(known: _Known, model: str, version: int, fingerprint: str) -> Failure | None:
    """Why the version failed elsewhere, as it is asked for or, over it, whatever was asked of it."""
    return known.get((model, version, fingerprint)) or known.get((model, version, on_disk(fingerprint)))
