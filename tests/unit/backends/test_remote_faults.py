"""Servers behind a model that fail in every way: whose fault it was, who is asked again, what is told."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from remote_scene import DONE, HERE, SOURCE, asked, config, opened, request, streamed
from scene import on_loop
from upstream import EVENTS, Exchange, Script, always, answer, chat, delta, ending, event, reset, upstream

from backends.remote import Config, load
from gateway.config import convert
from gateway.errors import (
    BodyTooLarge,
    DeadlineExceeded,
    GatewayError,
    InferenceFailed,
    InvalidTensor,
    LoadFailed,
    NotReady,
    RateLimited,
    UpstreamRefused,
)


async def slow(exchange: Exchange) -> None:
    """Take the request, say nothing."""
    await exchange.gone()


async def stalls(exchange: Exchange) -> None:
    """Begin, then say nothing."""
    await exchange.send(EVENTS + delta("Hi"))
    await exchange.gone()


REFUSED = {"error": {"message": "no such top_k at\n127.0.0.1", "param": "top_k", "code": "bad", "type": "x"}}

FAULTS: list[tuple[str, Script, dict[str, Any], type[GatewayError], int]] = [
    ("reset before the first byte", reset, {}, InferenceFailed, 3),
    ("closed before the first byte", ending(), {}, InferenceFailed, 3),
    ("cut off in the answer", ending(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"), {}, InferenceFailed, 1),
    ("slow head", slow, {"head_seconds": 0.05}, DeadlineExceeded, 1),
    ("total time", slow, {"total_seconds": 0.05}, DeadlineExceeded, 1),
    ("429", always(answer(REFUSED, 429)), {}, RateLimited, 3),
    ("429, long", always(answer(REFUSED, 429, retry_after="60")), {}, RateLimited, 1),
    ("500", always(answer({"error": {"message": "at /home/x"}}, 500)), {}, InferenceFailed, 1),
    ("502", always(answer(b"<html>", 502)), {}, InferenceFailed, 3),
    ("503", always(answer(b"", 503)), {"retries": 1}, NotReady, 2),
    ("504", always(answer(b"", 504)), {"retries": 0}, DeadlineExceeded, 1),
    ("400", always(answer(REFUSED, 400)), {}, UpstreamRefused, 1),
    ("413", always(answer(REFUSED, 413)), {}, BodyTooLarge, 1),
    ("401", always(answer(REFUSED, 401)), {}, InferenceFailed, 1),
    ("redirect", always(answer(b"", 302, location="http://127.0.0.1:1/")), {}, InferenceFailed, 1),
    ("bad JSON", always(answer(b"{'choices': ")), {}, InferenceFailed, 1),
    ("other JSON", always(answer({"choices": [{"message": 3}]})), {}, InferenceFailed, 1),
    ("no choices", always(answer({})), {}, InferenceFailed, 1),
    ("huge", always(answer(b" " * 5000)), {"answer_bytes": 4096}, InferenceFailed, 1),
    ("compressed", always(answer(b"x", content_encoding="gzip")), {}, InferenceFailed, 1),
    ("no HTTP", ending(b"SSH-2.0-x\r\n\r\n"), {}, InferenceFailed, 3),
]


@pytest.mark.parametrize(
    ("script", "settings", "kind", "times"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
@on_loop
async def test_fault(script: Script, settings: dict[str, Any], kind: type[GatewayError], times: int) -> None:
    """Each is the error that tells whose fault it was, asked as often as may be, and shows no address."""
    async with upstream(script) as server, opened(server.url, **settings) as backend:
        with pytest.raises(kind) as caught:
            await backend.infer(request())
    assert (type(caught.value), len(server.asked)) == (kind, times)
    assert not [word for word in ("127.0.0.1", "http:", "/home", "\n") if word in str(caught.value)]


@on_loop
async def test_refusal_is_the_callers() -> None:
    """A 4xx keeps its status, message, parameter and code."""
    with pytest.raises(UpstreamRefused) as caught:
        await asked(always(answer(REFUSED, 422)))
    error = caught.value
    assert (error.status, error.param, error.code, str(error)) == (422, "top_k", "bad", "no such top_k at ...")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ([delta("Hi")], InferenceFailed),
        ([delta("Hi"), DONE], InferenceFailed),
        ([delta("Hi"), b"data: {\n\n"], InferenceFailed),
        ([delta("Hi"), event({"error": {"message": "boom", "code": 500}})], InferenceFailed),
        ([delta("Hi"), event({"object": "error", "message": "too long", "code": 400})], UpstreamRefused),
    ],
)
@on_loop
async def test_fault_in_a_stream(data: list[bytes], kind: type[GatewayError]) -> None:
    """What came before it is told, then that it failed; nothing is asked again."""
    async with upstream(ending(EVENTS, *data)) as server, opened(server.url) as backend:
        stream = backend.stream(request())
        assert (await anext(stream)).outputs["text"].tolist() == ["Hi"]
        with pytest.raises(kind):
            await anext(stream)
        assert len(server.asked) == 1


@on_loop
async def test_a_server_that_wants_uuids() -> None:
    """A wordless 400 for an id that is no UUID is asked again with one, the same for the same id, and from then on."""

    async def wants(exchange: Exchange) -> None:
        good = len(exchange.headers["x-request-id"]) == 36
        await exchange.send(answer(chat("Hi")) if good else answer(b"", 400))

    async with upstream(wants) as server, opened(server.url, retries=0) as backend:
        for _ in range(2):
            said = await backend.infer(request(headers=(("x-request-id", "abc-1"),)))
            assert said.outputs["text"].tolist() == ["Hi"]
        first, *rest = (exchange.headers["x-request-id"] for exchange in server.asked)
        assert (first, len(rest), len(set(rest))) == ("abc-1", 2, 1)
    async with upstream(always(answer(b"", 400))) as server, opened(server.url, retries=0) as backend:
        with pytest.raises(UpstreamRefused):
            await backend.infer(request(headers=(("x-request-id", "abc-1"),)))
        assert len(server.asked) == 2


@on_loop
async def test_silence_in_a_stream() -> None:
    """A server that does not go on is given up."""
    with pytest.raises(DeadlineExceeded, match="did not go on"):
        await streamed(stalls, idle_seconds=0.05)


@on_loop
async def test_nobody_there() -> None:
    """Neither a closed port nor a name that does not exist is the caller's fault; both load, and are not ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://no-such-host.invalid"):
        async with opened(url) as backend:
            assert not backend.status.ready
            with pytest.raises(NotReady, match="does not take connections"):
                await backend.infer(request())
        with pytest.raises(LoadFailed, match="no server behind it has answered within 0 s"):
            await load(SOURCE, config(url, required=True))


@on_loop
async def test_plain_server_behind_https() -> None:
    """A failed handshake is told as a server that cannot be reached."""
    async with upstream(reset) as server, opened(server.url.replace("http:", "https:"), retries=0) as backend:
        with pytest.raises(NotReady):
            await backend.infer(request())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@on_loop
async def test_certificates(tmp_path: Path) -> None:
    """A certificate that nobody vouches for is refused, unless `ca_file` does."""
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    words = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here")
    whose = ("-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", *words, *whose, "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with upstream(always(answer(chat("Hi"))), context) as server:
        async with opened(server.url, retries=0) as backend:
            with pytest.raises(NotReady):
                await backend.infer(request())
        async with opened(server.url, ca_file=str(certificate)) as backend:
            assert (await backend.infer(request())).outputs["text"].tolist() == ["Hi"]


@on_loop
async def test_retry_waits_as_told() -> None:
    """A server that asks for a rest gets it; then its answer counts."""
    replies = [answer(b"", 429, retry_after="0.05"), answer(chat("Hi"))]

    async def script(exchange: Exchange) -> None:
        await exchange.send(replies.pop(0))

    began = time.monotonic()
    response, server = await asked(script)
    assert (response.outputs["text"].tolist(), len(server.asked)) == (["Hi"], 2)
    assert time.monotonic() - began >= 0.05


@on_loop
async def test_deadline_of_the_caller() -> None:
    """It ends the call, and does not speak against the server."""
    async with upstream(slow) as server, opened(server.url, eject_after=1) as backend:
        with pytest.raises(DeadlineExceeded):
            await backend.infer(request(deadline=time.monotonic() + 0.05))
        assert backend.status.ready


@pytest.mark.parametrize("script", [slow, stalls])
@on_loop
async def test_cancelled_call_closes_the_connection(script: Script) -> None:
    """The server sees at once that nobody waits any more."""
    closed, begun = asyncio.Event(), asyncio.Event()

    async def watched(exchange: Exchange) -> None:
        begun.set()
        await script(exchange)
        closed.set()

    async with upstream(watched) as server, opened(server.url) as backend:
        task = asyncio.ensure_future(backend.infer(request()))
        await begun.wait()
        task.cancel()
        await asyncio.wait_for(closed.wait(), 5)
        assert task.cancelled() or (await asyncio.gather(task, return_exceptions=True))


@on_loop
async def test_closed_stream_closes_the_connection() -> None:
    """So does a stream whose reader leaves."""
    closed = asyncio.Event()

    async def watched(exchange: Exchange) -> None:
        await stalls(exchange)
        closed.set()

    async with upstream(watched) as server, opened(server.url) as backend:
        stream = backend.stream(request())
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(closed.wait(), 5)


@on_loop
async def test_failover() -> None:
    """Of two servers one of which breaks off, every call is answered; that one is put aside, and told of."""
    async with (
        upstream(reset) as bad,
        upstream(always(answer(chat("Hi")))) as good,
        opened(bad.url, good.url, eject_after=2, eject_seconds=60) as backend,
    ):
        for _ in range(8):
            assert (await backend.infer(request())).outputs["text"].tolist() == ["Hi"]
        assert (len(bad.asked), len(good.asked)) == (2, 8)
        assert backend.status.note == "1 of 2 servers behind it do not answer"
        assert backend.status.ready


@on_loop
async def test_server_comes_back() -> None:
    """A model none of whose servers answered is ready once one does, without a call."""
    working = always(answer(chat("Hi")))
    async with upstream(working) as server, opened(server.url, eject_after=1, retries=0, eject_seconds=600) as backend:
        server.script = reset
        with pytest.raises(InferenceFailed):
            await backend.infer(request())
        assert not backend.status.ready
        async with asyncio.timeout(10):
            while not backend.status.ready:  # noqa: ASYNC110 - the status is all that there is to see
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"urls": ["ftp://a"]}, r"remote.urls\[0\]: expected http"),
        ({"urls": ["http://u:p@a"]}, r"remote.urls\[0\]: expected http"),
        ({"forward_headers": ["Cookie"]}, "'Cookie' is never passed on"),
        ({"forward_headers": ["a b"]}, "'a b' is never passed on"),
        ({"api_key": {"env": "NO_SUCH_KEY"}}, "NO_SUCH_KEY is not set"),
        ({"api_key": {"file": "no-such-file"}}, "the file cannot be read"),
        ({"api_key": {}}, "exactly one of env and file"),
        ({"inputs": {"x": {}}}, "a language model has its own"),
        ({"kind": "v2", "inputs": {"x": {}}}, "give inputs and outputs, or neither"),
        ({"urls": ["https://a"], "ca_file": "no-such-file"}, "no readable file of certificates"),
    ],
)
@on_loop
async def test_settings_that_cannot_be_meant(table: dict[str, Any], reason: str) -> None:
    """Each is refused by its key, and no path is shown."""
    with pytest.raises(LoadFailed, match=reason) as caught:
        await load(SOURCE, convert({"kind": "openai", "urls": ["http://a"]} | table, Config, "model.toml"))
    assert str(HERE) not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '["a"]', '{"role": "user"}', "[" * 100_000, '"\ud800"'])
@on_loop
async def test_messages_that_are_none(text: str) -> None:
    """They are the caller's mistake, and nobody is asked."""
    async with upstream(reset) as server, opened(server.url) as backend:
        with pytest.raises(InvalidTensor):
            await backend.infer(request(text=text))
        assert not server.asked
