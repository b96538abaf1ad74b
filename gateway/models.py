"""What is loaded: versions come, serve, drain and go, while requests read an immutable snapshot."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from gateway.errors import LabelNotFound, LoadFailed, ModelExists, ModelNotFound, NotReady
from gateway.heap import give_back
from gateway.interfaces import Backend, Device
from gateway.lifecycle import Book, Failure, Loaded
from gateway.loadedmodel import LoadedModel as LoadedModel
from gateway.loadedmodel import summaries
from gateway.loading import load_version, shown
from gateway.needs import NOTHING, Need, asked_of
from gateway.repository import ModelFolder, Scan, VersionFolder, scan, settle
from gateway.residency import ModelMemory
from gateway.summary import VersionSummary
from gateway.types import ModelStatus

DRAIN_SECONDS = 60.0
LOADS_AT_ONCE = 2
"""Of different models; those of one model follow one another."""

log = logging.getLogger("tensorgate.models")


class Models:
    """The models under the roots, loaded and kept in step with the disk."""

    def __init__(
        self,
        roots: Sequence[Path],
        device: Device = "auto",
        single: Mapping[str, Path] = MappingProxyType({}),
        *,
        drain_seconds: float = DRAIN_SECONDS,
        on_change: Callable[[], None] | None = None,
        output: Callable[[str], Path | None] = lambda model: None,
        memory: ModelMemory | None = None,
    ) -> None:
        self.roots = tuple(roots)
        self.device = device
        self.single = dict(single)
        """Name to the folder of a model that lies in no root."""
        self.drain_seconds = drain_seconds
        self._on_change = on_change
        self._output = output
        self._snapshot: dict[str, LoadedModel] = {}
        self._books: dict[str, Book] = {}
        self._folders: dict[str, ModelFolder] = {}
        self._scan: Scan | None = None
        self._awaited: set[str] | None = None
        """Models known at start that have not become available yet."""
        self.memory = memory
        """Where it is None, what is loaded stays loaded."""
        self.pools: Path | None = None
        """Where the process takes connections that has the workers of all; None where they are this one's own."""
        # What a load takes of the memory can be measured where no other runs beside it.
        self.needs: Mapping[str, Need] = {}
        """What services ask of models; `follow` makes it so."""
        self._turns = asyncio.Semaphore(LOADS_AT_ONCE if memory is None else 1)
        self._looking = asyncio.Lock()
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._drains: set[asyncio.Task[None]] = set()

    # What requests and pages read...

    @property
    def ready(self) -> bool:
        """Every model known at start has become available or has vanished; later failures do not undo it."""
        return self._awaited is not None and not self._awaited

    @property
    def problems(self) -> dict[str, str]:
        """Folder to why what lies there is not served as it stands; for the operator, not for clients."""
        return self._scan.problems if self._scan else {}

    def names(self) -> list[str]:
        """The models on disk and those still going, in alphabetical order."""
        return sorted(self._snapshot)

    def get(self, name: str) -> LoadedModel | None:
        """The model as it stands now."""
        return self._snapshot.get(name)

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> Loaded:
        """The version that answers; raises LabelNotFound for an unknown label, else ModelNotFound."""
        model = self._snapshot.get(name)
        if model is not None:
            return model.resolve(version, label)
        if label is not None:
            raise LabelNotFound(f"there is no model {name[:128]!r}, so it has no labels", name, label)
        raise ModelNotFound(f"there is no model {name[:128]!r}", name, version)

    def serving(self) -> Iterator[tuple[str, int, Backend]]:
        """Every version that takes requests, with what answers them."""
        for name in self.names():
            for number, loaded in self._snapshot[name].versions.items():
                yield name, number, loaded.backend

    def describe(self) -> list[VersionSummary]:
        """Every tracked version of every model."""
        return [summary for name in self.names() for summary in summaries(self._snapshot[name])]

    # What moves it...

    async def start(self) -> None:
        """Load everything wanted, each model on its own: a model's failure is recorded, not raised.

        Requests may be served meanwhile. Raises ConfigError if a root cannot be read.
        """
        async with self._looking:
            found = await asyncio.to_thread(scan, self.roots, None, self.single)
            self._scan, self._folders = found, dict(found.models)
        self._awaited = set(found.models | dict.fromkeys(found.unread))
        for name, problem in found.problems.items():
            log.warning("%s: %s", name, problem)
        self._follow_all()
        await self._followed()

    async def watch(self, poll_seconds: float) -> None:
        """Look at the disk again and again until cancelled; run it as a task after `start`."""
        while True:
            await asyncio.sleep(poll_seconds)
            if self.memory is not None:
                self.memory.sweep()
            try:
                await self.look()
            except Exception:
                log.exception("the models folders could not be looked at")

    async def look(self) -> None:
        """Scan once and begin what follows from it, without waiting for loads.

        A change counts once two looks in a row have seen the same.
        """
        async with self._looking:
            before = self._scan or Scan({}, {}, frozenset())
            found = await asyncio.to_thread(scan, self.roots, before, self.single)
            for name, problem in found.problems.items():
                if before.problems.get(name) != problem:
                    log.warning("%s: %s", name, problem)
            self._folders = settle(self._folders, before, found)
            self._scan = found
            self._follow_all()

    def follow(self) -> None:
        """Begin to make the models what is asked of them."""
        if self._scan is not None:
            self._follow_all()

    async def refresh(self) -> None:
        """Look once and wait until what follows from it is loaded; old versions may still drain."""
        await self.look()
        await self._followed()

    async def add(self, name: str, directory: Path) -> None:
        """Serve one more model, whose own folder that is; returns once it answers, or forgets it again.

        Raises ModelExists, NotReady while one of that name still goes, LoadFailed or OutOfMemory.
        """
        async with self._looking:
            if name in self._folders:
                raise ModelExists(f"there is a model {name!r} already")
            if name in self._books:
                raise NotReady(f"the model {name!r} is still being unloaded", retry_after=1.0)
            found = await asyncio.to_thread(scan, (), None, {name: directory})
            if name not in found.models:
                raise LoadFailed(found.problems[name])
            self.single[name] = directory
            self._folders[name] = found.models[name]
            if self._scan is not None:  # so that the next look knows it, even if it cannot be read then
                self._scan = replace(self._scan, models=self._scan.models | found.models)
            self._follow_all()
        await self._settled(name)
        model = self._snapshot.get(name)
        if model is not None and model.latest is not None:
            return
        book = self._books.get(name)
        failure = book.failure() if book else None
        await self.remove(name)
        raise failure or LoadFailed("it was unloaded before it could answer")

    async def remove(self, name: str) -> None:
        """Take a model that was added offline; returns once nothing of it is in use. Again does nothing."""
        async with self._looking:
            if self.single.pop(name, None) is None:
                return
            self._folders.pop(name, None)
            self._follow_all()
        await self._settled(name)
        self._follow_all()

    async def _settled(self, name: str) -> None:
        """Wait until a model is as its folder says, and what it took offline is gone."""
        running = self._followers.get(name)
        if running is not None and not running.done():
            await asyncio.wait([running])
        while drains := [task for task in self._drains if task.get_name() == f"drain {name}"]:
            await asyncio.wait(drains)

    async def drained(self) -> None:
        """Wait until nothing that was taken offline is still in use."""
        while self._drains:
            await asyncio.wait(self._drains)

    async def close(self, drain_seconds: float | None = None) -> None:
        """Take no more requests, drain for so long, free everything; a load in progress is cancelled."""
        if drain_seconds is not None:
            self.drain_seconds = drain_seconds
        for task in self._followers.values():
            task.cancel()
        await self._followed()
        for book in self._books.values():
            book.folder = None
            self._retire(book)
        await self.drained()
        self._snapshot = {}

    def _follow_all(self) -> None:
        """Have each model follow its folder; forget those that are gone."""
        if self._awaited and self._scan:
            self._awaited &= self._folders.keys() | self._scan.unread
        for name in sorted(self._books.keys() | self._folders.keys()):
            book = self._books.setdefault(name, Book(name))
            folder = self._folders.get(name)
            book.folder = folder and asked_of(folder, self.needs.get(name, NOTHING))
            if book.over:
                self._forget(name)
                continue
            self._publish(book)
            running = self._followers.get(name)
            if (running is None or running.done()) and (book.due() or book.surplus()):
                self._followers[name] = asyncio.create_task(self._follow(book), name=f"follow {name}")

    async def _followed(self) -> None:
        while running := [task for task in self._followers.values() if not task.done()]:
            await asyncio.wait(running)

    async def _follow(self, book: Book) -> None:
        """Bring a model to what its folder holds, one load at a time."""
        try:
            self._retire(book)
            while book.due():
                async with self._turns:
                    # The disk may have moved on while others had their turn.
                    if (model := book.folder) and (version := book.due()):
                        await self._load(book, model, version)
                self._retire(book)
        except Exception:
            log.exception("%s: cannot follow its folder", book.name)

    async def _load(self, book: Book, model: ModelFolder, version: VersionFolder) -> None:
        """Load beside whatever answers now; only then swap."""
        what = f"{book.name} version {version.version}"
        book.load_begins(version.version)
        self._publish(book)
        loaded = await self._try(model, version)
        if not isinstance(loaded, Loaded):
            book.load_failed(version, loaded)
            self._publish(book)
            return
        replaced = book.load_done(loaded)
        log.info("%s: available on %s after %.3f s", what, loaded.backend.status.provider, loaded.load_seconds)
        if replaced:
            self._drain(book, replaced)

    async def _try(self, model: ModelFolder, version: VersionFolder) -> Loaded | Failure:
        """The version, or why it cannot be had."""
        what = f"{model.name} version {version.version}"
        log.info("%s: loading", what)
        try:
            output = self._output(model.name)
            return await load_version(model, version, self.device, output, self.memory, self.pools)
        except Exception as error:
            failure = shown(error)
            del error  # with its traceback goes what was half loaded
        await asyncio.to_thread(give_back)
        log.error("%s: not loaded: %s", what, failure)
        return failure

    def _retire(self, book: Book) -> None:
        """Take offline what may go, and publish."""
        for loaded in book.surplus():
            book.retire(loaded)
            log.info("%s version %d: unloading", book.name, loaded.version)
            self._drain(book, loaded)
        self._publish(book)

    def _drain(self, book: Book, loaded: Loaded) -> None:
        task = asyncio.create_task(self._end(book, loaded), name=f"drain {book.name}")
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)

    async def _end(self, book: Book, loaded: Loaded) -> None:
        """Wait for the requests on it, then close it."""
        what = f"{book.name} version {loaded.version}"
        left = await loaded.drain(self.drain_seconds)
        if left:
            log.warning("%s: closed with %d requests still running after %g s", what, left, self.drain_seconds)
        try:
            async with asyncio.timeout(self.drain_seconds):
                await loaded.backend.close()
        except Exception:
            log.exception("%s: could not be closed cleanly", what)
        await asyncio.to_thread(give_back)
        book.closed(loaded.version)
        log.info("%s: closed", what)
        self._publish(book)

    def _publish(self, book: Book) -> None:
        """Let requests see the model as it now stands."""
        book.trim()
        serving = book.serving()
        status = self._told(book)
        latest = next(iter(serving.values()), None)
        model = LoadedModel(book.name, status, serving, status.labels, latest)
        if self._awaited and book.complete:
            self._awaited.discard(book.name)
        if model != self._snapshot.get(book.name):
            self._snapshot = self._snapshot | {book.name: model}
            self._changed()

    def _told(self, book: Book) -> ModelStatus:
        """How the model is said to stand."""
        return book.status()

    def _forget(self, name: str) -> None:
        del self._books[name]
        self._followers.pop(name, None)
        if name in self._snapshot:
            self._snapshot = {other: model for other, model in self._snapshot.items() if other != name}
            log.info("%s: gone", name)
            self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()
