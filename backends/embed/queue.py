"""Texts of all requests wait in one place and are encoded together with others of about their length."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gateway.errors import Overloaded

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[Sequence[int]]], Vectors]
"""Shapes: [texts][tokens] -> [texts, size]."""


class Waiting(Struct, eq=False):
    """One text that waits for its vector."""

    tokens: Sequence[int]
    vector: "Future[Vectors]"


def bucket(length: int) -> int:
    """The length that a text is filled up to: at most a quarter more than it has, but for the shortest."""
    step = 8 if length <= 32 else 1 << max(3, length.bit_length() - 3)
    return -(-length // step) * step


class Queue:
    """The waiting texts of one model, and the thread that encodes them."""

    def __init__(self, encode: Encode, most_waiting: int, batch_tokens: int, name: str) -> None:
        self._encode = encode
        self._most = most_waiting
        self._batch_tokens = batch_tokens
        self._waiting: deque[Waiting] = deque()
        self._lock = threading.Lock()
        self._running = False
        self._thread = ThreadPoolExecutor(1, f"embed-{name}")

    async def vectors(self, texts: Sequence[Sequence[int]]) -> list[Vectors]:
        """A vector for each text. Raises Overloaded, and what the encoder raises; cancelling it drops what waits."""
        entries = [Waiting(tokens, Future()) for tokens in texts]
        with self._lock:
            if self._waiting and len(self._waiting) + len(entries) > self._most:
                raise Overloaded(f"{len(self._waiting)} texts wait already", retry_after=1)
            self._waiting.extend(entries)
            start, self._running = not self._running, True
        if start:
            self._thread.submit(self._run)
        try:
            return list(await asyncio.gather(*(asyncio.wrap_future(entry.vector) for entry in entries)))
        finally:
            for entry in entries:
                entry.vector.cancel()

    def close(self) -> None:
        """End the thread; nothing waits any more."""
        self._thread.shutdown(wait=False)

    def _run(self) -> None:
        while True:
            with self._lock:
                batch = self._next()
                if not batch:
                    self._running = False
                    return
            try:
                vectors = self._encode([entry.tokens for entry in batch])
                for entry, vector in zip(batch, vectors, strict=True):
                    entry.vector.set_result(vector)
            except Exception as error:
                for entry in batch:
                    if not entry.vector.done():
                        entry.vector.set_exception(error)

    def _next(self) -> list[Waiting]:
        """The oldest text, and all that are filled up to the same length, as far as they fit one run."""
        batch: list[Waiting] = []
        others: list[Waiting] = []
        length = most = 0
        while self._waiting:
            entry = self._waiting.popleft()
            if not length:
                length = bucket(len(entry.tokens))
                most = max(1, self._batch_tokens // length)
            if bucket(len(entry.tokens)) != length or len(batch) == most:
                others.append(entry)
            elif entry.vector.set_running_or_notify_cancel():
                batch.append(entry)
            elif not batch:
                length = 0
        self._waiting.extend(others)
        return batch
