"""Language models behind a server that does what the test says: what it is asked, what is made of it, what may fail."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scene import on_loop
from upstream import EVENTS, Exchange, Script, Upstream, always, answer, chat, delta, ending, event, reset, upstream

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
async def opened(*urls: str, source: ModelSource = SOURCE, **more: Any) -> AsyncIterator[Backend]:
    backend = await load(source, config(*urls, **more))
    try:
        yield backend
    finally:
        await backend.close()


def request(field: str = "messages", text: str = HELLO, **more: Any) -> InferenceRequest:
    told = {"signature": "chat" if field == "messages" else "serving_default"} | more
    return InferenceRequest({field: np.array([text], object)}, **told)


async def asked(script: Script, **more: Any) -> tuple[InferenceResponse, Upstream]:
    """The answer to one request, and the server that it came from."""
    settings = more.pop("settings", {})
    async with upstream(script) as server, opened(server.url, **settings) as backend:
        return await backend.infer(request(**more)), server


async def streamed(script: Script, **more: Any) -> list[InferenceResponse]:
    async with upstream(script) as server, opened(server.url, **more) as backend:
        return [part async for part in backend.stream(request())]


# What is asked...


@on_loop
async def test_every_field_is_sent() -> None:
    """Fields nobody here knows are sent, too; the model is called as it is there, and defaults are filled in."""
    settings = {"model": "org/big", "defaults": {"top_p": 0.5, "seed": 1}}
    parameters = {"seed": 7, "guided_regex": "a+", "user": None, "stream_options": {"include_usage": True}}
    _, server = await asked(always(answer(chat("Hi"))), settings=settings, parameters=parameters)
    [call] = server.asked
    assert (call.method, call.path) == ("POST", "/v1/chat/completions")
    messages = json.loads(HELLO)
    expected = {"model": "org/big", "messages": messages, "top_p": 0.5, "seed": 7, "guided_regex": "a+"}
    assert expected == call.document


@on_loop
async def test_key_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gets the configured key and the headers that the gateway hands on, and nothing is compressed."""
    monkeypatch.setenv("LLM_KEY", "sk-1\n")
    settings = {"api_key": {"env": "LLM_KEY"}}
    told = (("traceparent", "00-ab-cd-01"), ("x-request-id", "r1"))
    _, server = await asked(always(answer(chat("Hi"))), settings=settings, headers=told)
    headers = server.asked[0].headers
    names = ("authorization", "traceparent", "x-request-id", "accept-encoding", "content-type")
    assert [headers[name] for name in names] == ["Bearer sk-1", "00-ab-cd-01", "r1", "identity", "application/json"]


@pytest.mark.parametrize(
    ("settings", "parameters", "path", "body"),
    [
        ({}, {}, "/v1/completions", {"prompt": "a"}),
        ({}, {"prompt_token_ids": [[1, 2]]}, "/v1/completions", {"prompt": [1, 2]}),
        ({}, {"max_new_tokens": 3}, "/v1/completions", {"prompt": "a", "max_tokens": 3}),
        ({"offers": ["chat"]}, {}, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
@on_loop
async def test_prompts(settings: dict[str, Any], parameters: dict[str, Any], path: str, body: dict[str, Any]) -> None:
    """A prompt is completed, or asked as a user's message where there are only chats."""
    told = chat("Hi") if "chat" in path else {"choices": [{"index": 0, "text": "Hi"}]}
    response, server = await asked(
        always(answer(told)), settings=settings, field="prompt", text="a", parameters=parameters
    )
    assert (server.asked[0].path, server.asked[0].document) == (path, {"model": "llm", **body})
    assert response.outputs["text"].tolist() == ["Hi"]


@on_loop
async def test_one_model_offers_all() -> None:
    """Chat and embeddings of one model have signatures of their own; vectors come in the order of the texts."""
    data = [{"index": 1, "embedding": "AACAPw=="}, {"index": 0, "embedding": [0.5]}]
    script = always(answer({"data": data, "usage": {"prompt_tokens": 2, "total_tokens": 2}}))
    offers = ["chat", "completions", "embeddings"]
    async with upstream(script) as server, opened(server.url, offers=offers) as backend:
        assert ["serving_default", "chat", "embed"] == list(backend.metadata.signatures)
        assert backend.metadata.extras["tasks"] == ("generate", "embed")
        texts = InferenceRequest({"text": np.array(["a", "b"], object)}, signature="embed")
        response = await backend.infer(texts)
    assert server.asked[0].document == {"model": "llm", "input": ["a", "b"], "encoding_format": "float"}
    assert response.outputs["embedding"].tolist() == [[0.5], [1.0]]


# What is made of it...


@on_loop
async def test_whole_answer() -> None:
    """Text, calls, thoughts, logprobs, reason and counts are kept."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    document = chat("Hi", tool_calls=[call], reasoning_content="Hm.")
    document["choices"][0]["logprobs"] = {"content": [{"token": "Hi", "logprob": -0.5}]}
    document["usage"] = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    response, _ = await asked(always(answer(document)))
    [choice] = response.parameters["choices"]
    assert response.outputs["text"].tolist() == ["Hi"]
    assert (choice["tool_calls"], choice["message"]) == ([call], {"reasoning_content": "Hm."})
    assert (choice["logprobs"], choice["finish_reason"]) == ([{"token": "Hi", "logprob": -0.5}], "stop")
    assert response.parameters["usage"] == document["usage"]


@on_loop
async def test_streamed_answer() -> None:
    """Parts come as they are sent, whatever the lines' ends; the count is told with the last."""
    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{"}}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    counted = event({"choices": [], "usage": usage})
    data = [b": ping\r\n\r\n", delta("", role="assistant"), delta("Hé").replace(b"\n", b"\r\n"),
            delta("", tool_calls=[call]), delta("", "tool_calls"), counted, DONE]  # fmt: skip
    parts = await streamed(ending(EVENTS, *data))
    assert [part.outputs["text"].tolist() for part in parts] == [["Hé"], [""], [""]]
    assert parts[1].parameters["tool_calls"] == [call]
    assert (parts[2].parameters["finish_reason"], parts[2].parameters["usage"]) == ("tool_calls", usage)


@on_loop
async def test_logprobs_of_completions() -> None:
    """The four lists become entries, as chats have them."""
    logprobs = {"tokens": ["H"], "token_logprobs": [-1.0], "top_logprobs": [{"H": -1.0}], "text_offset": [0]}
    told = {"choices": [{"index": 0, "text": "H", "logprobs": logprobs}]}
    response, _ = await asked(always(answer(told)), field="prompt", text="a")
    [entry] = response.parameters["choices"][0]["logprobs"]
    assert entry == {
        "token": "H", "logprob": -1.0, "bytes": [72], "top_logprobs": [{"token": "H", "logprob": -1.0, "bytes": [72]}]
    }  # fmt: skip


# What may fail...


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
    async with upstream(always(answer(chat("Hi")))) as server:
        async with opened(server.url.replace("http:", "https:"), retries=0) as backend:
            with pytest.raises(NotReady):
                await backend.infer(request())


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
    async with upstream(reset) as bad, upstream(always(answer(chat("Hi")))) as good:
        async with opened(bad.url, good.url, eject_after=2, eject_seconds=60) as backend:
            for _ in range(8):
                assert (await backend.infer(request())).outputs["text"].tolist() == ["Hi"]
            assert (len(bad.asked), len(good.asked)) == (2, 8)
            assert backend.status.note == "1 of 2 servers behind it do not answer"
            assert backend.status.ready


@on_loop
async def test_server_comes_back() -> None:
    """A model none of whose servers answered is ready once one does, without a call."""
    async with upstream(always(answer(chat("Hi")))) as server:
        async with opened(server.url, eject_after=1, eject_seconds=600, retries=0) as backend:
            server.script = reset
            with pytest.raises(InferenceFailed):
                await backend.infer(request())
            assert not backend.status.ready
            server.script = always(answer(chat("Hi")))
            async with asyncio.timeout(10):
                while not backend.status.ready:
                    await asyncio.sleep(0.02)  # noqa: ASYNC110 - the status is all that there is to see


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
