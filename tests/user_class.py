"""A user's class, served by real workers, for tests."""

import asyncio
import functools
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from backends import pyclass
from gateway.interfaces import Backend, ModelSource
from gateway.types import InferenceRequest, InferenceResponse

PATIENCE = 20.0


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test as a plain function that runs on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE))

    return run


@asynccontextmanager
async def loaded(folder: Path, text: str, output: Path | None = None, **options: Any) -> AsyncIterator[Backend]:
    """The class `Model` of that text, served for the length of a block."""
    (folder / "my.py").write_text(textwrap.dedent(text))
    source = ModelSource("m", 1, folder, folder, output=output)
    backend = await pyclass.load(source, pyclass.Config(entry="my:Model", **options))
    try:
        yield backend
    finally:
        await backend.close()


def request(value: Any, **more: Any) -> InferenceRequest:
    """The value as X; texts bare."""
    tensor = np.array(value, object if isinstance(value, str) else None)
    return InferenceRequest({"X": tensor}, **more)


def y(response: InferenceResponse) -> Any:
    """What came back."""
    return response.outputs["Y"].tolist()


async def parts_of(backend: Backend, asked: InferenceRequest) -> list[Any]:
    """All parts of a streamed answer."""
    return [y(part) async for part in backend.stream(asked)]


async def complete(backend: Backend) -> None:
    """Wait until no worker is missing."""
    while backend.status.note:  # noqa: ASYNC110 - a status is looked at
        await asyncio.sleep(0.01)


ECHO = """
    class Model:
        def predict(self, X, names):
            return X
"""
