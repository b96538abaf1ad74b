"""A streamed answer on its way: the model's parts inside the adapter's chunks, closed together, whoever ends it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Protocol, TypeVar, runtime_checkable

from gateway.deadlines import too_late
from gateway.gate import Visit
from gateway.lifecycle import Loaded
from gateway.types import InferenceResponse


@runtime_checkable
class Closable(Protocol):
    """What is to be closed when nobody asks it for more; generators are, plain iterators need not be."""

    async def aclose(self) -> None:
        """Stop and free everything; again does nothing."""


S = TypeVar("S")


@asynccontextmanager
async def closing(chunks: S) -> AsyncIterator[S]:
    """What is streamed, closed at the end where it can be."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, Closable):
            await chunks.aclose()


class Holdable(Protocol):
    """What must not go while a stream runs."""

    def acquire(self) -> None:
        """Keep it."""

    def release(self) -> None:
        """Let it go."""


class Both:
    """A version, and the request's place in the service."""

    def __init__(self, loaded: Loaded, visit: Visit) -> None:
        self._held = (loaded, visit)

    def acquire(self) -> None:
        """Keep both."""
        for one in self._held:
            one.acquire()

    def release(self) -> None:
        """Let both go."""
        for one in self._held:
            one.release()


class Parts:
    """A model's parts, the first already here; what is held is let go by `aclose`."""

    def __init__(
        self,
        parts: AsyncIterator[InferenceResponse],
        held: Holdable,
        failed: Callable[[Exception], None],
        deadline: float | None = None,
    ) -> None:
        self._parts = parts
        self._held = held
        self._deadline = deadline
        self._failed = failed
        """Told of what goes wrong after the first part; before it, an error is the caller's to tell."""
        self._first: InferenceResponse | None = None
        self._closed = False
        held.acquire()

    async def prime(self) -> None:
        """Wait for the first part, so that an early failure still has a status of its own."""
        self._first = await anext(self._parts, None)

    def __aiter__(self) -> AsyncIterator[InferenceResponse]:
        return self

    async def __anext__(self) -> InferenceResponse:
        if self._first is not None:
            part, self._first = self._first, None
            return part
        try:
            return await self._next()
        except StopAsyncIteration:
            raise
        except Exception as error:
            self._failed(error)
            raise

    async def _next(self) -> InferenceResponse:
        deadline = self._deadline
        if deadline is None:
            return await anext(self._parts)
        try:
            async with asyncio.timeout(max(0.0, deadline - monotonic())) as limit:
                return await anext(self._parts)
        except TimeoutError:
            if limit.expired():
                raise too_late() from None
            raise

    async def aclose(self) -> None:
        """Stop the model's work and let go what is held; again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if isinstance(self._parts, Closable):
                await self._parts.aclose()
        finally:
            self._held.release()


class Chunks:
    """An adapter's chunks over a model's parts: one `aclose` ends both, even where no chunk was ever asked for."""

    def __init__(self, chunks: AsyncIterator[bytes], parts: Parts) -> None:
        self._chunks = chunks
        self._parts = parts

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Close the adapter's generator first: it may still be inside the model's."""
        try:
            if isinstance(self._chunks, Closable):
                await self._chunks.aclose()
        finally:
            await self._parts.aclose()
