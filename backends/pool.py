"""A pool around any backend: a version loads, wrappers and all, in processes of its own, and is asked over frames.

No backend by itself: `placement = "pool"` in model.toml puts a model here. `serve` is the other side, in the worker.
"""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from backends._calls import header_of
from backends._hosting import serve
from backends._pool import Pool
from backends._pool_config import WorkersConfig
from backends._pooled import Pooled
from backends._worker import Launch
from gateway.interfaces import Backend, BackendStatus, ModelSource
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata

__all__ = ["Config", "host", "serve"]

AT_ONCE = 64
"""Requests in one worker; how many of them run side by side is the backend's business, as it is without a pool."""

ROOT = Path(__file__).resolve().parent.parent


class Config(WorkersConfig, frozen=True, forbid_unknown_fields=True):
    """The `[pool]` table of model.toml."""


async def host(source: ModelSource, order: dict[str, Any], config: Config) -> Backend:
    """The version that the order describes, ready in every worker. Raises LoadFailed or OutOfMemory."""
    pool = Pool(_launch(source, order), config.settings(AT_ONCE))
    told = await pool.start()
    return PooledBackend(msgspec.convert(told["metadata"], ModelMetadata), pool)


def _launch(source: ModelSource, order: dict[str, Any]) -> Launch:
    return Launch(
        name=f"{source.name} version {source.version}",
        # -P: what lies in the model's folder is not for the worker to import.
        command=(sys.executable, "-P", "-m", "gateway.worker"),
        folder=source.directory,
        environment={"PYTHONPATH": os.pathsep.join([str(ROOT), *_inherited()])},
        start={"id": 0, "order": order},
    )


def _inherited() -> list[str]:
    """Where the gateway finds its plugins, so that the worker does; relative names would mean another folder there."""
    return [str(Path(name).absolute()) for name in os.environ.get("PYTHONPATH", "").split(os.pathsep) if name]


class PooledBackend(Pooled):
    """A version that answers from other processes."""

    def __init__(self, metadata: ModelMetadata, pool: Pool) -> None:
        self.metadata = metadata
        super().__init__(pool)

    @property
    def runs_at_once(self) -> int:
        """One in each worker."""
        return self._pool.size[1]

    @property
    def status(self) -> BackendStatus:
        """What the workers said last, and how many there are."""
        status = msgspec.convert(self._pool.told["status"], BackendStatus)
        ready, wanted = self._pool.size
        workers = f"in {wanted} worker{'s' * (wanted > 1)}" if ready == wanted else f"{ready} of {wanted} workers ready"
        return msgspec.structs.replace(status, note=f"{workers}; {status.note}" if status.note else workers)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run once, or once more if the worker ended on the way."""
        return await self._pool.infer(header_of(request), request.inputs, request.deadline)

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The backend's parts."""
        parts = self._pool.stream(header_of(request), request.inputs, request.deadline)
        try:
            async for part in parts:
                yield part
        finally:
            await parts.aclose()  # type: ignore[attr-defined]
