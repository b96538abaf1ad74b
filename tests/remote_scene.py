"""A language model behind a server that a test plays, loaded and asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from upstream import Script, Upstream, upstream

from backends.remote import Config, load
from gateway.config import convert
from gateway.interfaces import Backend, ModelSource
from gateway.types import InferenceRequest, InferenceResponse

HERE = Path(__file__).parent
SOURCE = ModelSource("llm", 1, HERE, HERE)
DONE = b"data: [DONE]\n\n"
HELLO = '[{"role":"user","content":"Hello!"}]'


def config(*urls: str, **more: Any) -> Config:
    """Quick to fail, so that tests are quick."""
    told = {"kind": "openai", "urls": [f"{url}/v1" for url in urls], "start_seconds": 0, "backoff_seconds": 0.001}
    return convert(told | more, Config, "model.toml")


@asynccontextmanager
async def opened(*urls: str, **more: Any) -> AsyncIterator[Backend]:
    """A model of those servers, until the end of an `async with` block."""
    backend = await load(SOURCE, config(*urls, **more))
    try:
        yield backend
    finally:
        await backend.close()


def request(field: str = "messages", text: str = HELLO, **more: Any) -> InferenceRequest:
    """One chat, or one prompt."""
    told = {"signature": "chat" if field == "messages" else "serving_default"} | more
    return InferenceRequest({field: np.array([text], object)}, **told)


async def asked(script: Script, **more: Any) -> tuple[InferenceResponse, Upstream]:
    """The answer to one request, and the server that it came from."""
    settings = more.pop("settings", {})
    async with upstream(script) as server, opened(server.url, **settings) as backend:
        return await backend.infer(request(**more)), server


async def streamed(script: Script, **more: Any) -> list[InferenceResponse]:
    """The parts of the answer to a chat."""
    async with upstream(script) as server, opened(server.url, **more) as backend:
        return [part async for part in backend.stream(request())]
