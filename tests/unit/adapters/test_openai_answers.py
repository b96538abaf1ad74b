"""OpenAI's answers: whole, in events and as errors, whatever the model behind them tells of itself."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest

from adapters.openai import Config, create
from gateway.errors import (
    InferenceFailed,
    Overloaded,
)
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Signature,
    TensorSpec,
)

Json = dict[str, Any]

CHAT, TEXTS, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
STRING, VECTOR = TensorSpec("text", "string", (None,)), TensorSpec("embedding", "float32", (None, 3))
MODEL = ModelMetadata(
    "m",
    1,
    "test",
    {
        "serving_default": Signature("serving_default", "predict", {"prompt": STRING}, {"text": STRING}),
        "chat": Signature("chat", "predict", {"messages": STRING}, {"text": STRING}),
    },
)
EMBEDDER = ModelMetadata(
    "e",
    1,
    "test",
    {"serving_default": Signature("serving_default", "predict", {"text": STRING}, {"embedding": VECTOR})},
)
BASE: dict[str, Json] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    TEXTS: {"prompt": "a"},
    VECTORS: {"input": "a"},
}
TOOL: Json = {"type": "function", "function": {"name": "f"}}
ENTRY: Json = {"token": "ab", "logprob": -0.5, "bytes": [97, 98], "top_logprobs": [{"token": "ab", "logprob": -0.5}]}
CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def ask(path: str, body: Json, **config: Any) -> tuple[Infer, InferenceRequest, Call]:
    """The operation, and the request that it makes of a body."""
    (found,) = [one for one in create(Config(**config), DecodeLimits()).routes() if one.path == path]
    assert isinstance(found, Infer)
    call = Call("POST", path, body=json.dumps({"model": "m"} | BASE[path] | body).encode(), id="r-1")
    request = found.decode(call, found.target(call), EMBEDDER if path == VECTORS else MODEL)
    assert isinstance(request, InferenceRequest)
    return found, request, call


def response(*texts: Any, **parameters: Any) -> InferenceResponse:
    """What a model says."""
    return InferenceResponse({"text": np.array(texts, object)}, parameters)


def whole(path: str, given: InferenceResponse, body: Json | None = None, **config: Any) -> tuple[Json, dict[str, str]]:
    """The answer's body and headers."""
    found, request, call = ask(path, body or {}, **config)
    reply = found.encode(given, request, call)
    assert isinstance(reply.body, bytes)
    return json.loads(reply.body), dict(reply.headers)


def events(path: str, parts: Sequence[InferenceResponse | Exception], body: Json | None = None) -> list[Any]:
    """The data of each event; the last is checked to be the end."""

    async def given() -> AsyncIterator[InferenceResponse]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def read() -> bytes:
        found, request, call = ask(path, {"stream": True} | (body or {}))
        assert found.stream is not None
        reply = found.stream(given(), request, call)
        assert not isinstance(reply.body, bytes)
        assert {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}.items() <= dict(reply.headers).items()
        return b"".join([chunk async for chunk in reply.body])

    *frames, end, rest = asyncio.run(read()).decode().split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def deltas(chunks: list[Json]) -> list[tuple[int, Json, str | None]]:
    """Index, delta and reason of each chunk's only choice."""
    return [(one["index"], one["delta"], one["finish_reason"]) for chunk in chunks for one in chunk["choices"]]


# Whole...


@pytest.mark.parametrize("flat", [True, False])
def test_a_message(flat: bool) -> None:
    """Role and content stand in the message, and in the choice itself unless that is off."""
    usage = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    told = [{"index": 0, "finish_reason": "length", "logprobs": [ENTRY], "tool_calls": None}]
    body, headers = whole(CHAT, response("hey", choices=told, usage=usage), flat_choice=flat)
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "hey", "refusal": None}
    assert {"role", "content"} <= choice.keys() if flat else not {"role", "content"} & choice.keys()
    assert choice["logprobs"] == {"content": [ENTRY], "refusal": None}
    assert (choice["finish_reason"], body["usage"], body["model"]) == ("length", usage, "m")
    assert headers["openai-processing-ms"].isdigit()
    assert "x-ignored-params" not in headers


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "f"}}, "stop")],
)
def test_a_call(choice: Any, reason: str) -> None:
    """The content is null beside it, and who named the function gets another reason."""
    told = [{"finish_reason": "tool_calls", "tool_calls": [CALL]}]
    body, _ = whole(CHAT, response("", choices=told), {"tools": [TOOL], "tool_choice": choice})
    message = body["choices"][0]["message"]
    assert (message["content"], message["tool_calls"], body["choices"][0]["finish_reason"]) == (None, [CALL], reason)


@pytest.mark.parametrize("path", [CHAT, TEXTS])
@pytest.mark.parametrize(("said", "shown"), [("", ""), (b"\xff", "�"), ("\ud800", "?")])
def test_a_model_that_tells_nothing_of_itself(path: str, said: Any, shown: str) -> None:
    """A user's class may answer with texts alone: they have ended, and nothing was counted."""
    body, _ = whole(path, response(said))
    (choice,) = body["choices"]
    assert (choice["message"]["content"] if path == CHAT else choice["text"]) == shown
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    assert body["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def test_ignored_fields_are_named() -> None:
    """In a header, in ASCII; those that are known are not."""
    _, headers = whole(CHAT, response("x"), {"novel": 1, "über\n": 2, "user": "u", "top_k": 3})
    assert headers["x-ignored-params"] == "novel, \\xfcber\\n"


def test_the_log_probabilities_of_a_completion() -> None:
    """Four lists; a token's offset is where it begins in the text, and the first of an echo has no probability."""
    first = {"token": "a", "logprob": None, "bytes": [97], "top_logprobs": []}
    told = [{"finish_reason": "stop", "logprobs": [first, ENTRY]}]
    body, _ = whole(TEXTS, response("aab", choices=told), {"logprobs": 1, "echo": True})
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["a", "ab"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"ab": -0.5}],
        "text_offset": [0, 1],
    }


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ({}, [[1.0, 2.0, 2.0], [0.5, 0.0, 0.0]]),
        ({"encoding_format": "base64"}, [[1.0, 2.0, 2.0], [0.5, 0.0, 0.0]]),
        ({"encoding_format": "float", "dimensions": 3}, [[1.0, 2.0, 2.0], [0.5, 0.0, 0.0]]),
    ],
)
def test_vectors(body: Json, rows: list[list[float]]) -> None:
    """In the order of the texts, as numbers or as the bytes of little-endian float32."""
    given = InferenceResponse(
        {"embedding": np.array(rows, np.float32)}, {"usage": {"prompt_tokens": 4, "total_tokens": 4}}
    )
    told, _ = whole(VECTORS, given, body)
    found = [one["embedding"] for one in told["data"]]
    if body.get("encoding_format") == "base64":
        found = [np.frombuffer(base64.b64decode(one), "<f4").tolist() for one in found]
    assert (found, [one["index"] for one in told["data"]]) == (rows, [0, 1])
    assert (told["object"], told["usage"]) == ("list", {"prompt_tokens": 4, "total_tokens": 4})


def test_a_vector_that_is_not_finite_is_the_models_failure() -> None:
    """JSON has no NaN, and null is no number."""
    with pytest.raises(InferenceFailed):
        whole(VECTORS, InferenceResponse({"embedding": np.array([[np.nan, 0, 0]], np.float32)}))


# Events...

INTERNAL = "internal error; the log has its reason under request r-1"


def test_a_stream() -> None:
    """Each choice has its role first and its reason last; empty pieces are not sent, and usage closes it."""
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    parts = [
        response("", choice=1),
        response("b", choice=1, finish_reason="length"),
        response("late", choice=1),
        response("a", choice=0),
        response("", choice=0, finish_reason="stop", usage=usage),
    ]
    chunks = events(CHAT, parts, {"n": 2, "stream_options": {"include_usage": True}})
    role = {"role": "assistant", "content": ""}
    assert deltas(chunks) == [
        (0, role, None),
        (1, role, None),
        (1, {"content": "b"}, None),
        (1, {}, "length"),
        (0, {"content": "a"}, None),
        (0, {}, "stop"),
    ]
    assert [chunk["usage"] for chunk in chunks] == [None] * 6 + [usage]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_log_probabilities_wait_for_their_text() -> None:
    """Entries of tokens that make no text yet come with the next text, or at the end."""
    parts = [response("", logprobs=[ENTRY]), response("abab", logprobs=[ENTRY]), response("", logprobs=[ENTRY])]
    chunks = events(CHAT, [*parts, response("", finish_reason="stop")], {"logprobs": True})
    told = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"]]
    assert [len(one["content"]) if one else 0 for one in told] == [0, 2, 1]


def test_a_call_in_pieces() -> None:
    """Id, type and name come once, the index always."""
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    parts = [
        response("", tool_calls=[first]),
        response("", tool_calls=[more]),
        response("", finish_reason="tool_calls"),
    ]
    chunks = events(CHAT, parts, {"tools": [TOOL]})
    assert deltas(chunks)[1:] == [(0, {"tool_calls": [first]}, None), (0, {"tool_calls": [more]}, None),
                                  (0, {}, "tool_calls")]  # fmt: skip


def test_a_call_whose_name_is_repeated() -> None:
    """A server that tells id and name with every piece does not make clients join them."""
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    parts = [
        response("", tool_calls=[first | {"function": {"name": "f", "arguments": text}}])
        for text in ("", '{"a', '":1}')
    ]
    told = deltas(events(CHAT, [*parts, response("", finish_reason="tool_calls")], {"tools": [TOOL]}))
    assert [delta["tool_calls"][0] for _, delta, _ in told[1:-1]] == [
        first,
        {"index": 0, "function": {"arguments": '{"a'}},
        {"index": 0, "function": {"arguments": '":1}'}},
    ]


def test_a_call_that_comes_whole() -> None:
    """What it is goes before its arguments, and of several calls each has chunks of its own."""
    calls = [{"index": place, "id": f"call_{place}", "function": {"name": "f", "arguments": "{}"}} for place in (0, 1)]
    told = deltas(events(CHAT, [response("", tool_calls=calls, finish_reason="tool_calls")], {"tools": [TOOL]}))
    assert [delta["tool_calls"] for _, delta, _ in told[1:-1]] == [
        [{"index": 0, "id": "call_0", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": "{}"}}],
        [{"index": 1, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 1, "function": {"arguments": "{}"}}],
    ]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InferenceFailed("broken"), ("broken", "server_error", "internal_error")),
        (Overloaded("full"), ("full", "rate_limit_error", "rate_limit_exceeded")),
        (ValueError("/secret"), (INTERNAL, "server_error", "internal_error")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, TEXTS])
def test_a_failure_in_a_stream_is_told(path: str, error: Exception, told: tuple[str, str, str]) -> None:
    """It is an event of its own before the end, and no choice looks as if it had ended."""
    *before, last = events(path, [response("a"), error])
    assert before
    assert all(choice["finish_reason"] is None for chunk in before for choice in chunk["choices"])
    message, kind, code = told
    assert last == {"error": {"message": message, "type": kind, "param": None, "code": code}}


@pytest.mark.parametrize("path", [CHAT, TEXTS])
def test_a_stream_without_reasons_ends_well(path: str) -> None:
    """A user's class need not tell why it stopped."""
    chunks = events(path, [response("a"), response("b")], {"stream_options": {"include_usage": True}})
    assert [choice["finish_reason"] for choice in chunks[-2]["choices"]] == ["stop"]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 0)


def test_a_completion_in_pieces() -> None:
    """No role; offsets go on from piece to piece; the last has no text."""
    parts = [response("ab", logprobs=[ENTRY]), response("ab", logprobs=[ENTRY]), response("", finish_reason="stop")]
    choices = [chunk["choices"][0] for chunk in events(TEXTS, parts, {"logprobs": 1})]
    assert [(one["text"], one["finish_reason"]) for one in choices] == [("ab", None), ("ab", None), ("", "stop")]
    assert [one["logprobs"] and one["logprobs"]["text_offset"] for one in choices] == [[0], [2], None]


def test_a_stream_left_early_closes_what_it_reads() -> None:
    """Closing it ends the chunks inside, too."""
    closed = []

    async def given() -> AsyncIterator[InferenceResponse]:
        try:
            while True:
                yield response("a")
        finally:
            closed.append(True)

    async def leave() -> None:
        found, request, call = ask(CHAT, {"stream": True})
        assert found.stream is not None
        parts = given()
        body: Any = found.stream(parts, request, call).body
        for _ in range(3):
            await anext(body)
        await body.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(body)
        await parts.aclose()  # type: ignore[attr-defined]

    asyncio.run(leave())
    assert closed == [True]
