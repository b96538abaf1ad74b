"""Work on many bytes leaves the event loop for a thread, and only a little of it runs at once."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gateway.interfaces import Infer
from gateway.types import Call, InferenceRequest, ModelMetadata, Reply, Target

LARGE_BYTES = 1 << 20
"""Bodies and answers from this size on are decoded and encoded on a thread."""
# PERF: a body blocks the event loop for about 1.5 ms a MiB; a hop to a thread costs 0.05 ms.

SLOW_BYTES = 16 << 10
"""Bodies from this size on that cannot be decoded quickly, too."""
# PERF: an exact parser takes thirty times as long: up to 0.6 s for a hostile body of 1 MiB.

AT_ONCE = 2
"""Threads at such work. More would not be faster, for they hold the interpreter's lock; but each may take fifty times
its body's size in memory for a while."""

P = ParamSpec("P")
R = TypeVar("R")


class Offload:
    """Decides where pure functions of bytes run."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, size: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it here, or on a thread where it has many bytes to work on."""
        if size < LARGE_BYTES:
            return function(*args, **kwargs)
        return await self._on_thread(function, *args, **kwargs)

    async def decode(
        self, operation: Infer, call: Call, target: Target, metadata: ModelMetadata
    ) -> InferenceRequest | Reply:
        """The body as the operation decodes it; here if it is small, or the common case of one that is not large."""
        size = len(call.body)
        if size >= SLOW_BYTES and operation.decode_quickly is not None:
            request = operation.decode_quickly(call, target, metadata) if size < LARGE_BYTES else None
            if request is not None:
                return request
            return await self._on_thread(operation.decode, call, target, metadata)
        return await self.run(size, operation.decode, call, target, metadata)

    async def _on_thread(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        await self._turns.acquire()
        work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
        # NOTE: whoever stops waiting does not stop the thread, which keeps its turn until it is done.
        work.add_done_callback(self._done)
        return await asyncio.shield(work)

    def _done(self, work: "asyncio.Future[R]") -> None:
        self._turns.release()
        if not work.cancelled():
            work.exception()  # nobody may be waiting for it any more
