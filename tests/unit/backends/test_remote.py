"""Language models behind another server: what it is asked, and what is made of its answers."""

import json
from typing import Any

import numpy as np
import pytest
from remote_scene import DONE, HELLO, asked, opened, streamed
from scene import on_loop
from upstream import EVENTS, always, answer, chat, delta, ending, event, upstream

from gateway.types import InferenceRequest

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
        assert list(backend.metadata.signatures) == ["serving_default", "chat", "embed"]
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
