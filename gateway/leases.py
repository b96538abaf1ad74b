"""Backends that several processes use as one: opened for the first, and closed once the last has let go."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from gateway.interfaces import Backend, BackendStatus, Scalable
from gateway.needs import scalable
from gateway.streaming import closing
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata

COUNT = "replicas"
"""The key of a table that says how many workers there are: what it says at the first opening, and `scale` after."""

log = logging.getLogger("tensorgate.models")

Open = Callable[[dict[str, Any]], Awaitable[Backend]]


class Leases:
    """What is open in this process, by what was told of it."""

    def __init__(self, open_backend: Open) -> None:
        self._open_backend = open_backend
        self._shared: dict[str, _Shared] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._wanted: Mapping[str, int] = {}

    async def take(self, told: dict[str, Any]) -> Backend:
        """The backend, opened at most once; to close it is to let go. Raises what the opening does."""
        key = _key(told)
        shared = self._shared.get(key)
        if shared is None:
            source = told["order"]["source"]
            shared = self._shared[key] = _Shared(source["name"], source["version"])
            shared.opening = asyncio.create_task(self._open(key, shared, told))
        shared.users += 1
        try:
            backend = await asyncio.shield(shared.opening)
        except BaseException:
            self._let_go(key, shared)
            raise
        return Lease(backend, lambda: self._let_go(key, shared))

    def scale(self, wanted: Mapping[str, int]) -> None:
        """Have so many workers of these models, of those that come later, too."""
        self._wanted = wanted
        for shared in self._shared.values():
            self._follow(shared)

    def standing(self) -> dict[str, Scalable]:
        """By model, its newest version that has nodes."""
        found: dict[str, tuple[int, Scalable]] = {}
        for shared in self._shared.values():
            nodes = shared.nodes
            if nodes is not None and shared.version >= found.get(shared.model, (0, nodes))[0]:
                found[shared.model] = (shared.version, nodes)
        return {model: nodes for model, (_, nodes) in found.items()}

    async def close(self) -> None:
        """Close what is still open, and wait for it."""
        for key, shared in list(self._shared.items()):
            shared.users = 0
            self._let_go(key, shared)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _open(self, key: str, shared: "_Shared", told: dict[str, Any]) -> Backend:
        try:
            backend = shared.backend = await self._open_backend(told)
        except BaseException:
            self._forget(key, shared)  # the next who asks has it tried again
            raise
        self._follow(shared)
        return backend

    def _forget(self, key: str, shared: "_Shared") -> None:
        if self._shared.get(key) is shared:
            del self._shared[key]

    def _follow(self, shared: "_Shared") -> None:
        nodes, wanted = shared.nodes, self._wanted.get(shared.model)
        if nodes is not None and wanted is not None and nodes.nodes[1] != wanted:
            nodes.scale(wanted)

    def _let_go(self, key: str, shared: "_Shared") -> None:
        shared.users -= 1
        if shared.users > 0 or shared.over:
            return
        shared.over = True
        self._forget(key, shared)
        task = asyncio.create_task(_end(shared))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Shared:
    """One backend, and how many use it."""

    opening: asyncio.Task[Backend]

    def __init__(self, model: str, version: int) -> None:
        self.model = model
        self.version = version
        self.backend: Backend | None = None
        self.users = 0
        self.over = False

    @property
    def nodes(self) -> Scalable | None:
        return scalable(self.backend) if self.backend is not None else None


class Lease:
    """One process's share of a backend."""

    def __init__(self, inner: Backend, let_go: Callable[[], None]) -> None:
        self.metadata: ModelMetadata = inner.metadata
        self._inner = inner
        self._let_go = let_go

    @property
    def status(self) -> BackendStatus:
        """The backend's."""
        return self._inner.status

    @property
    def runs_at_once(self) -> int:
        """Of how many runs at the same time the backend gains."""
        return int(getattr(self._inner, "runs_at_once", 1))

    @property
    def process_bytes(self) -> int:
        """What the backend's workers hold of the machine's memory."""
        return int(getattr(self._inner, "process_bytes", 0))

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run once."""
        return await self._inner.infer(request)

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The backend's parts."""
        async with closing(self._inner.stream(request)) as parts:
            async for part in parts:
                yield part

    async def close(self) -> None:
        """Let go of it."""
        self._let_go()


async def _end(shared: _Shared) -> None:
    try:
        backend = await shared.opening
    except Exception:  # whoever asked for it was told
        return
    try:
        await backend.close()
    except Exception:
        log.exception("%s version %d: could not be closed cleanly", shared.model, shared.version)
    else:
        log.info("%s version %d: its workers have ended", shared.model, shared.version)


def _key(told: dict[str, Any]) -> str:
    """What two processes must both say to use one backend."""
    order = told["order"]
    tables = {
        name: {key: value for key, value in table.items() if key != COUNT} for name, table in order["tables"].items()
    }
    return json.dumps({**told, "order": {**order, "tables": tables}}, sort_keys=True)
