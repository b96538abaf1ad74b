"""What every answer carries, whether it is sent whole or in parts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway import app
from gateway.app import Gateway
from gateway.body import Body
from gateway.config import LimitsConfig
from gateway.models import Models
from gateway.observe import Observer
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


async def halves() -> AsyncIterator[bytes]:
    """An adapter's chunks."""
    yield b"he"
    yield b"llo"


class Halves:
    """The same chunks of an iterator that has nothing to close."""

    def __init__(self) -> None:
        self._left = iter([b"he", b"llo"])

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._left:
            return chunk
        raise StopAsyncIteration


class Fixed:
    """A pipeline that answers every call alike."""

    def __init__(
        self, make_body: Callable[[], bytes | AsyncIterator[bytes]], media_type: str = "application/json"
    ) -> None:
        self._make_body = make_body
        self._media_type = media_type

    draining = False

    async def answer(self, head: Call, body: Body, trace: Trace) -> Reply:
        await body.read(head, ignores_unknown_codings=True)
        return Reply(self._make_body(), media_type=self._media_type)


class NoProxy:
    """Where no service is a custom one."""

    def passage(self, head: Call) -> None:
        return None


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
@pytest.mark.parametrize("make_body", [lambda: b"hello", halves, Halves], ids=["whole", "generator", "iterator"])
def test_an_answer_says_whether_the_connection_goes_on(
    make_body: Callable[[], bytes | AsyncIterator[bytes]], draining: bool
) -> None:
    """Whole or streamed, it has the request's id; a leaving gateway asks the client to go elsewhere next time."""
    pipeline = Fixed(make_body)
    pipeline.draining = draining
    gateway = Gateway(pipeline, NoProxy(), Models([Path()]), Observer(), LimitsConfig(), None)  # type: ignore[arg-type]
    headers, body = asyncio.run(exchange(gateway))
    assert body == b"hello"
    assert headers[b"x-request-id"] == b"mine"
    assert headers.get(b"connection") == (b"close" if draining else None)


@pytest.mark.parametrize("make_body", [lambda: b"hello", halves, Halves], ids=["whole", "generator", "iterator"])
def test_the_bytes_of_an_answer_are_counted(make_body: Callable[[], bytes | AsyncIterator[bytes]]) -> None:
    """However it is sent."""
    observer = Observer()
    gateway = Gateway(Fixed(make_body), NoProxy(), Models([Path()]), observer, LimitsConfig(), None)  # type: ignore[arg-type]
    asyncio.run(exchange(gateway))
    sent = [sample.value for metric in observer.collect() for sample in metric.samples
            if sample.name == "tensorgate_response_bytes_total"]  # fmt: skip
    assert sent == [5]


def test_a_generator_is_closed_when_the_answer_is_over() -> None:
    """Also where it is left before its end."""
    closed = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"hello"
        finally:
            closed.append(True)

    body = chunks()  # held, so that no collector closes it

    async def leave() -> None:
        pipeline = Fixed(lambda: body)
        gateway = Gateway(pipeline, NoProxy(), Models([Path()]), Observer(), LimitsConfig(), None)  # type: ignore[arg-type]
        first = asyncio.Event()
        incoming = iter([{"type": "http.request", "body": b""}])

        async def receive() -> Any:
            if message := next(incoming, None):
                return message
            await first.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("body"):
                first.set()
                await asyncio.Event().wait()

        await gateway(dict(SCOPE), receive, send)
        assert closed == [True]

    asyncio.run(leave())


@pytest.mark.parametrize(
    ("media_type", "pinged"), [("text/event-stream; charset=utf-8", True), ("application/jsonlines", False)]
)
def test_silent_events_are_kept_alive(media_type: str, pinged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments fill the silence of server-sent events, between whole events and never after the end; nothing else."""
    monkeypatch.setattr(app, "PING_SECONDS", 0.01)

    async def quiet() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.sleep(0.05)
        yield b"data: 2\n\n"

    gateway = Gateway(Fixed(quiet, media_type), NoProxy(), Models([Path()]), Observer(), LimitsConfig(), None)  # type: ignore[arg-type]
    _, body = asyncio.run(exchange(gateway))
    events = body.decode().split("\n\n")
    assert (events[0], events[-2:]) == ("data: 1", ["data: 2", ""])
    assert set(events[1:-2]) == ({": ping"} if pinged else set())
