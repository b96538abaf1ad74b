"""Which loaded versions are in memory: within a byte budget, the one unused longest makes room for the next.

A version that has made room stays listed, takes requests, and is loaded again by the first of them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic, perf_counter

from msgspec import Struct
from msgspec.structs import replace

from gateway.config import GatewayConfig, bytes_of
from gateway.errors import GatewayError, ModelNotReady, OutOfMemory, Overloaded
from gateway.heap import give_back, resident_bytes
from gateway.interfaces import Backend, BackendStatus
from gateway.modelcost import FIRST_BYTES, Claim, cost_of, written
from gateway.streaming import closing
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata

RETRY_SECONDS = 1.0
"""After a load on demand has failed: how long its error is told to others, before one of them has it tried again."""
_AWAY = "unloaded; the next request loads it"

log = logging.getLogger("tensorgate.models")

Opener = Callable[[], Awaitable[Backend]]
"""Loads a version. Raises GatewayErrors only once it has been loaded before."""


class Bounds(Struct, frozen=True):
    """What all models together may take of the memory, and how long requests wait for one of them."""

    budget_bytes: int = 0
    """0 sets no bound."""
    idle_seconds: float = 0.0
    """A version that nobody has asked for so long is unloaded; 0 for never."""
    wait_seconds: float = 60.0
    most_waiting: int = 256
    """Requests for one version that wait until it is loaded."""


class Resident:
    """A version that may be in memory or not; whoever asks it waits until it is."""

    metadata: ModelMetadata
    """Of its first load: what callers have been told."""

    def __init__(self, claim: Claim, opener: Opener, memory: "ModelMemory") -> None:
        self.claim = claim
        self.opener = opener
        self.cost = claim.declared_bytes or claim.file_bytes
        """Bytes that it takes, or would take."""
        self.held = 0
        """Bytes of the budget that are its own now."""
        self.pinned = claim.pinned
        self.users = 0
        """Requests that run on it or wait for it."""
        self.used_at = monotonic()
        self.load_seconds = 0.0
        self.backend: Backend | None = None
        self.leaving: asyncio.Task[None] | None = None
        """Set while it is being closed, its bytes still taken."""
        self.closed = False
        self._memory = memory
        self._waiting = 0
        self._loading: asyncio.Task[Backend] | None = None
        self._failure: tuple[float, GatewayError] | None = None

    def adopt(self, backend: Backend) -> None:
        """It is in memory from now on."""
        self._status = backend.status
        self.backend = backend
        # NOTE: a custom service's server is called without its backend being asked, so nobody sees its last use.
        self.pinned = self.claim.pinned or "upstream" in backend.metadata.extras
        self.used_at = monotonic()

    def let_go(self) -> Backend | None:
        """It is not in memory any more, once what is returned has been closed."""
        backend, self.backend = self.backend, None
        if backend is not None:
            self._status = backend.status
        return backend

    @property
    def inner(self) -> Backend | None:
        """What is in memory."""
        return self.backend

    @property
    def status(self) -> BackendStatus:
        """Of the backend; while there is none, of the last one."""
        if self.backend is not None:
            return self.backend.status
        note = f"{_AWAY}; {self._status.note}" if self._status.note else _AWAY
        return replace(self._status, note=note)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run once, as soon as it is in memory."""
        self.users += 1
        try:
            backend = self.backend or await self._awake()
            return await backend.infer(request)
        finally:
            self._left()

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The backend's parts; it stays in memory until the last."""
        self.users += 1
        try:
            async with closing((self.backend or await self._awake()).stream(request)) as parts:
                async for part in parts:
                    yield part
        finally:
            self._left()

    async def close(self) -> None:
        """For good."""
        self.closed = True
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        await self._memory.forget(self)

    def _left(self) -> None:
        self.users -= 1
        self.used_at = monotonic()
        if not self.users:
            self._memory.idle(self)

    async def _awake(self) -> Backend:
        """The backend, loaded again: one load for all who wait. Raises CapacityErrors."""
        bounds = self._memory.bounds
        if self._failure is not None and monotonic() < self._failure[0]:
            raise self._failure[1].with_traceback(None)
        if self._waiting >= bounds.most_waiting:
            text = f"{self._waiting} requests wait for {self.claim.label} to be loaded, which is as many as may"
            raise Overloaded(text, max(self.load_seconds, 1.0))
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name=f"reload {self.claim.label}")
            self._loading.add_done_callback(self._loaded)
        loading = self._loading
        self._waiting += 1
        try:
            async with asyncio.timeout(bounds.wait_seconds) as limit:
                return await asyncio.shield(loading)
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"{self.claim.label} was not loaded within {bounds.wait_seconds:g} seconds; try again"
            raise ModelNotReady(text, self.claim.model, self.claim.version) from None
        except asyncio.CancelledError:
            if self.closed and loading.cancelled():
                text = f"{self.claim.label} has been unloaded"
                raise ModelNotReady(text, self.claim.model, self.claim.version) from None
            raise
        finally:
            self._waiting -= 1

    async def _load(self) -> Backend:
        try:
            backend = await self._memory.load(self, self._memory.bounds.wait_seconds)
        except OutOfMemory:
            raise
        except GatewayError as error:
            text = f"{self.claim.label} could not be loaded again: {error}"
            raise ModelNotReady(text, self.claim.model, self.claim.version) from None
        if backend.metadata != self.metadata:
            self._memory.unload(self, "changed")
            text = f"the files of {self.claim.label} have changed; they are being loaded"
            raise ModelNotReady(text, self.claim.model, self.claim.version)
        self._memory.reloads[self.claim.model] += 1
        log.info("%s: loaded again for a request, after %.3f s", self.claim.label, self.load_seconds)
        return backend

    def _loaded(self, loading: asyncio.Task[Backend]) -> None:
        self._loading = None
        error = None if loading.cancelled() else loading.exception()
        self._failure = (monotonic() + RETRY_SECONDS, error) if isinstance(error, GatewayError) else None
        if error is not None:
            log.error("%s: %s", self.claim.label, error)


class ModelMemory:
    """The budget, and who has which part of it. All on one event loop."""

    def __init__(self, bounds: Bounds, resident: Callable[[], int] = resident_bytes) -> None:
        self.bounds = bounds
        self.evictions: Counter[tuple[str, str]] = Counter()
        """By model and reason."""
        self.reloads: Counter[str] = Counter()
        self.residents: set[Resident] = set()
        self._resident_bytes = resident
        self._wants: dict[Resident, int] = {}
        """Loads that wait for room, and what they need."""
        self._freed = asyncio.Event()
        self._busy = 0
        self._moves = 0
        """Loads and closes, as they begin and end: what a measurement must not overlap."""
        self._kinds: set[str] = set()
        """Backends that have been loaded before."""

    @property
    def held_bytes(self) -> int:
        """What the versions in memory take, with those that are being loaded or closed."""
        return sum(one.held for one in self.residents)

    async def admit(self, claim: Claim, opener: Opener) -> Resident:
        """The version, loaded. Raises OutOfMemory for one that can never fit, and what the opener raises."""
        resident = Resident(claim, opener, self)
        self.residents.add(resident)
        try:
            resident.metadata = (await self.load(resident, None)).metadata
        except BaseException:
            self.residents.discard(resident)
            raise
        return resident

    async def load(self, resident: Resident, wait_seconds: float | None) -> Backend:
        """Bring it into memory, when there is room. Raises OutOfMemory where there is none in time."""
        if resident.leaving is not None:
            await asyncio.wait([resident.leaving])
        await self._make_room(resident, wait_seconds)
        started = perf_counter()
        try:
            backend = await self._measured(resident)
        except BaseException:
            resident.held = 0
            self._freed.set()
            raise
        resident.load_seconds = perf_counter() - started
        resident.held = resident.cost
        try:
            self._check_fits(resident)
        except OutOfMemory:
            await self._close(resident, backend)
            raise
        resident.adopt(backend)
        self._shed()
        return backend

    def unload(self, resident: Resident, reason: str) -> None:
        """Begin to take it out of memory; it stays known."""
        backend = resident.let_go()
        if backend is not None:
            self.evictions[resident.claim.model, reason] += 1
            log.info("%s: unloaded (%s)", resident.claim.label, reason)
            closing = self._close(resident, backend)
            resident.leaving = asyncio.create_task(closing, name=f"unload {resident.claim.label}")

    async def forget(self, resident: Resident) -> None:
        """It is not served any more; returns once its memory is free."""
        try:
            if resident.leaving is not None:
                await asyncio.wait([resident.leaving])
            elif (backend := resident.let_go()) is not None:
                await self._close(resident, backend)
        finally:
            self.residents.discard(resident)

    def idle(self, resident: Resident) -> None:
        """Nobody uses it just now: whoever waits for room may have its own."""
        # PERF: most of the time nobody waits, and this is one comparison.
        if self._wants or (self.bounds.budget_bytes and self.held_bytes > self.bounds.budget_bytes):
            self._shed()

    def sweep(self) -> None:
        """Unload what nobody has asked for a long time."""
        if self.bounds.idle_seconds:
            before = monotonic() - self.bounds.idle_seconds
            for one in self._evictable():
                if one.used_at <= before:
                    self.unload(one, "idle")

    # Room...

    async def _make_room(self, resident: Resident, wait_seconds: float | None) -> None:
        """Reserve what it takes; versions that nobody uses go first, then whoever ends its last request."""
        self._check_fits(resident)
        budget = self.bounds.budget_bytes
        self._wants[resident] = resident.cost
        try:
            async with asyncio.timeout(wait_seconds):
                while budget and self.held_bytes + resident.cost > budget:
                    self._freed.clear()
                    self._shed()
                    await self._freed.wait()
            resident.held = resident.cost
        except TimeoutError:
            text = f"there is no room for {resident.claim.label} while other models are busy; try again"
            raise OutOfMemory(text, 1.0) from None
        finally:
            del self._wants[resident]

    def _check_fits(self, resident: Resident) -> None:
        budget = self.bounds.budget_bytes
        pinned = sum(one.held for one in self.residents if one.pinned and one is not resident)
        if budget and resident.cost + pinned > budget:
            beside = f" beside {written(pinned)} of pinned models" if pinned else ""
            raise OutOfMemory(
                f"{resident.claim.label} takes {written(resident.cost)}, which does not fit into the "
                f"{written(budget)} of model_memory{beside}"
            )

    def _evictable(self) -> list[Resident]:
        """Those that may go and take anything, the one unused longest first."""
        free = [one for one in self.residents if one.backend and one.held and not one.users and not one.pinned]
        return sorted(free, key=lambda one: one.used_at)

    def _shed(self) -> None:
        """Begin to unload until there is room for what is held and wanted, or nothing more may go."""
        if not self.bounds.budget_bytes:
            return
        staying = sum(one.held for one in self.residents if one.leaving is None)
        over = staying + sum(self._wants.values()) - self.bounds.budget_bytes
        for one in self._evictable():
            if over > 0:
                over -= one.held
                self.unload(one, "room")

    async def _close(self, resident: Resident, backend: Backend) -> None:
        self._moves += 1
        try:
            await backend.close()
        except Exception:
            log.exception("%s: could not be closed cleanly", resident.claim.label)
        finally:
            del backend
            await asyncio.to_thread(give_back)
            self._moves += 1
            resident.held, resident.leaving = 0, None
            self._freed.set()

    async def _measured(self, resident: Resident) -> Backend:
        """Load it once nothing is being closed any more, and see what that takes."""
        while closing := [one.leaving for one in self.residents if one.leaving is not None]:
            await asyncio.wait(closing)
        alone = not self._busy
        self._busy += 1
        self._moves += 1
        moves = self._moves
        try:
            await asyncio.to_thread(give_back)
            before = self._resident_bytes()
            backend = await resident.opener()
            await asyncio.to_thread(give_back)
            elsewhere = getattr(backend, "process_bytes", 0)
            if alone and moves == self._moves:
                once = 0 if resident.claim.kind in self._kinds else FIRST_BYTES
                resident.cost = cost_of(resident.claim, self._resident_bytes() - before - once, elsewhere)
            else:
                resident.cost = max(resident.cost, cost_of(resident.claim, 0, elsewhere))
            self._kinds.add(resident.claim.kind)
            return backend
        finally:
            self._busy -= 1
            self._moves += 1


def model_memory(config: GatewayConfig) -> ModelMemory | None:
    """The memory as configured; None where what is loaded stays loaded."""
    bounds = Bounds(
        bytes_of(config.model_memory),
        config.model_idle_seconds,
        config.model_wait_seconds,
        config.model_waiting,
    )
    return ModelMemory(bounds) if bounds.budget_bytes or bounds.idle_seconds else None
