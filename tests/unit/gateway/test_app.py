"""What every answer carries, whether it is sent whole or in parts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.app import Gateway
from gateway.body import Body
from gateway.config import LimitsConfig
from gateway.models import Models
from gateway.observe import Observer
from gateway.streaming import Chunks
from gateway.trace import Trace
from gateway.types import Call, Reply

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/x",
    "raw_path": b"/x",
    "query_string": b"",
    "headers": [(b"x-request-id", b"mine")],
    "client": None,
}


class NoParts:
    """Stands for a model's parts, of which there are none to close."""

    async def aclose(self) -> None:
        """Nothing."""


async def halves() -> AsyncIterator[bytes]:
    """An adapter's chunks."""
    yield b"he"
    yield b"llo"


class Fixed:
    """A pipeline that answers every call alike."""

    def __init__(self, streams: bool) -> None:
        self._streams = streams

    async def answer(self, head: Call, body: Body, trace: Trace) -> Reply:
        await body.read(head, ignores_unknown_codings=True)
        return Reply(Chunks(halves(), NoParts()) if self._streams else b"hello")  # type: ignore[arg-type]


async def exchange(gateway: Gateway) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of the answer to a call whose client waits for it."""
    sent: list[Any] = []
    incoming = iter([{"type": "http.request", "body": b""}])

    async def receive() -> Any:
        return next(incoming, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await gateway(dict(SCOPE), receive, send)
    return dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_says_whether_the_connection_goes_on(streams: bool, draining: bool) -> None:
    """Whole or streamed, it has the request's id; a leaving gateway asks the client to go elsewhere next time."""
    gateway = Gateway(Fixed(streams), Models([Path()]), Observer(), LimitsConfig(), None)  # type: ignore[arg-type]
    gateway.draining = draining
    headers, body = asyncio.run(exchange(gateway))
    assert body == b"hello"
    assert headers[b"x-request-id"] == b"mine"
    assert headers.get(b"connection") == (b"close" if draining else None)
