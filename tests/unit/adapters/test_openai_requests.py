"""OpenAI's requests: which fields are honoured, ignored or refused, and what the model is given."""

import json
from typing import Any

import pytest

from adapters.openai import Config, create
from adapters.openai.errors import Refusal
from gateway.errors import BodyTooLarge, GatewayError, MalformedBody
from gateway.interfaces import Adapter, DecodeLimits, Infer
from gateway.types import Call, InferenceRequest, ModelMetadata, Signature, TensorSpec

Json = dict[str, Any]

TEXT = TensorSpec("text", "string", (None,))


def model(task: str = "generate", *, size: int | None = 4, **extras: Any) -> ModelMetadata:
    """A language model, or one that embeds."""
    if task == "embed":
        ends = [({"text": TEXT}, {"embedding": TensorSpec("embedding", "float32", (None, size))}, "serving_default")]
    else:
        ends = [({"prompt": TEXT}, {"text": TEXT}, "serving_default"), ({"messages": TEXT}, {"text": TEXT}, "chat")]
    signatures = {name: Signature(name, "predict", inputs, outputs) for inputs, outputs, name in ends}
    return ModelMetadata("m", 1, "test", signatures, extras={"task": task} | extras)


def operation(path: str, adapter: Adapter | None = None) -> Infer:
    """The operation of that path."""
    adapter = adapter or create(Config(), DecodeLimits())
    (found,) = [one for one in adapter.routes() if one.path == path]
    assert isinstance(found, Infer)
    return found


def decode(path: str, body: Json, metadata: ModelMetadata | None = None, **config: Any) -> InferenceRequest:
    """What the model is asked."""
    if metadata is None:
        metadata = model("embed" if path.endswith("embeddings") else "generate")
    found = operation(path, create(Config(**config), DecodeLimits()))
    call = Call("POST", path, body=json.dumps({"model": "m"} | body).encode())
    request = found.decode(call, found.target(call), metadata)
    assert isinstance(request, InferenceRequest)
    return request


CHAT, TEXTS, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
HELLO: Json = {"messages": [{"role": "user", "content": "Hi"}]}
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BASE: dict[str, Json] = {CHAT: HELLO, TEXTS: {"prompt": "a"}, VECTORS: {"input": "a"}}


def messages(*given: Json) -> Json:
    """A conversation."""
    return {"messages": list(given)}


def user(content: Any) -> Json:
    """A user's message."""
    return {"role": "user", "content": content}


def call(**changes: Any) -> Json:
    """An assistant's message that calls."""
    one = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}} | changes
    return {"role": "assistant", "content": None, "tool_calls": [one]}


REFUSED = [
    (CHAT, {"temperature": True}, "temperature", "invalid_type"),
    (CHAT, {"temperature": "1"}, "temperature", "invalid_type"),
    (CHAT, {"n": 1.5}, "n", "invalid_type"),
    (CHAT, {"n": 9}, "n", "invalid_value"),
    (CHAT, {"seed": 2**63}, "seed", "invalid_value"),
    (CHAT, {"seed": 1e300}, "seed", "invalid_value"),
    (CHAT, {"stop": ["a", 1]}, "stop", "invalid_type"),
    (CHAT, {"stop": [""]}, "stop", "invalid_value"),
    (CHAT, {"logit_bias": {"1": 101}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": []}, "logit_bias", "invalid_type"),
    (CHAT, {"logit_bias": {str(one): 1 for one in range(1025)}}, "logit_bias", "invalid_value"),
    (CHAT, {"top_logprobs": 1}, "top_logprobs", "invalid_value"),
    (CHAT, {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_type"),
    (CHAT, {"stream": True, "stream_options": True}, "stream_options", "invalid_type"),
    (CHAT, {"stop_token_ids": 5}, "stop_token_ids", "invalid_type"),
    (CHAT, {"user": 1}, "user", "invalid_type"),
    (CHAT, {"metadata": "x"}, "metadata", "invalid_type"),
    (CHAT, {"store": True}, "store", "unsupported_value"),
    (CHAT, {"service_tier": "flex"}, "service_tier", "unsupported_value"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
    (CHAT, {"prediction": {}}, "prediction", "unsupported_parameter"),
    (CHAT, {"functions": []}, "functions", "unsupported_parameter"),
    (CHAT, {"function_call": "auto"}, "function_call", "unsupported_parameter"),
    (CHAT, {"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    (
        CHAT,
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
        "response_format.json_schema.name",
        "invalid_value",
    ),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 1}}},
        "response_format.json_schema.schema",
        "invalid_type",
    ),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": 1}}},
        "response_format.json_schema.strict",
        "invalid_type",
    ),
    (CHAT, {"tools": {}}, "tools", "invalid_type"),
    (CHAT, {"tools": [TOOL] * 129}, "tools", "invalid_value"),
    (CHAT, {"tools": [{"type": "custom"}]}, "tools[0].type", "unsupported_value"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools[0].function", "invalid_type"),
    (
        CHAT,
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]},
        "tools[0].function.parameters",
        "invalid_type",
    ),
    (CHAT, {"tool_choice": "auto"}, "tool_choice", "invalid_value"),
    (CHAT, {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice", "unsupported_value"),
    (CHAT, {"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice", "invalid_value"),
    (CHAT, {"tools": [TOOL], "tool_choice": 1}, "tool_choice", "invalid_type"),
    (
        CHAT,
        {"tools": [TOOL], "response_format": {"type": "json_object"}},
        "response_format",
        "unsupported_value",
    ),
    (CHAT, messages(1), "messages[0]", "invalid_type"),  # type: ignore[arg-type]
    (CHAT, messages({"role": "function", "content": "x"}), "messages[0].role", "invalid_value"),
    (CHAT, messages({"role": [], "content": "x"}), "messages[0].role", "invalid_value"),
    (CHAT, messages({"role": "user", "content": "x", "name": 1}), "messages[0].name", "invalid_type"),
    (CHAT, messages(user([{"type": "text"}])), "messages[0].content[0].text", "invalid_type"),
    (CHAT, messages(user([{"type": "image_url"}])), "messages[0].content[0].type", "unsupported_value"),
    (CHAT, messages(user("a"), {"role": "assistant"}), "messages[1].content", "missing_required_parameter"),
    (CHAT, messages(user("a"), {"role": "assistant", "content": "b"}), "messages[1].role", "invalid_value"),
    (CHAT, messages(call(id=None), user("a")), "messages[0].tool_calls[0].id", "invalid_type"),
    (
        CHAT,
        messages(call(function={"name": "f", "arguments": {}}), user("a")),
        "messages[0].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    (CHAT, messages({"role": "assistant", "content": "", "tool_calls": 1}), "messages[0].tool_calls", "invalid_type"),
    (
        CHAT,
        messages({"role": "assistant", "content": "", "function_call": {}}),
        "messages[0].function_call",
        "unsupported_value",
    ),
    (CHAT, messages(*[user("a")] * 16385), "messages", "invalid_value"),
    (TEXTS, {"prompt": [[]]}, "prompt", "invalid_type"),
    (TEXTS, {"prompt": [True]}, "prompt", "invalid_type"),
    (TEXTS, {"prompt": [1, -1]}, "prompt", "invalid_value"),
    (TEXTS, {"prompt": ["a"] * 129}, "prompt", "invalid_value"),
    (TEXTS, {"max_tokens": 0}, "max_tokens", "invalid_value"),
    (TEXTS, {"logprobs": 6}, "logprobs", "invalid_value"),
    (TEXTS, {"suffix": "x"}, "suffix", "unsupported_parameter"),
    (TEXTS, {"best_of": 2}, "best_of", "unsupported_value"),
    (VECTORS, {"input": ["a", ""]}, "input", "invalid_value"),
    (VECTORS, {"input": ["a"] * 2049}, "input", "invalid_value"),
    (VECTORS, {"encoding_format": "int8"}, "encoding_format", "unsupported_value"),
    (VECTORS, {"dimensions": 2}, "dimensions", "invalid_value"),
]


@pytest.mark.parametrize(("path", "changes", "param", "code"), REFUSED)
def test_what_is_refused(path: str, changes: Json, param: str, code: str) -> None:
    """With 400, and a word for the field and for the reason."""
    with pytest.raises(Refusal) as caught:
        decode(path, BASE[path] | changes)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


@pytest.mark.parametrize(
    ("path", "changes", "parameters"),
    [
        (CHAT, {"n": 2.0, "temperature": 1}, {"n": 2, "temperature": 1.0}),
        (CHAT, {"stop": "a", "seed": -5}, {"stop": ["a"], "seed": -5}),
        (CHAT, {"tools": None, "user": None, "novel": None}, {}),
        (CHAT, {"novel": [1]}, {"novel": [1]}),
        (CHAT, {"service_tier": "auto", "modalities": ["text"], "store": False},
         {"service_tier": "auto", "modalities": ["text"], "store": False}),
        (CHAT, {"tools": [TOOL], "tool_choice": "none", "response_format": {"type": "json_object"}},
         {"tools": [TOOL], "tool_choice": "none", "response_format": {"type": "json_object"}}),
        (TEXTS, {}, {"max_tokens": 16}),
        (TEXTS, {"max_tokens": 0, "echo": True}, {"max_tokens": 0, "echo": True}),
        (TEXTS, {"best_of": 2, "n": 2}, {"n": 2, "max_tokens": 16}),
        (TEXTS, {"prompt": [1, 2]}, {"prompt_token_ids": [[1, 2]], "max_tokens": 16}),
        (TEXTS, {"prompt": [[1], [2]]}, {"prompt_token_ids": [[1], [2]], "max_tokens": 16}),
        (VECTORS, {"dimensions": 4}, {"dimensions": 4}),
        (VECTORS, {"input": [[7]]}, {"prompt_token_ids": [[7]]}),
    ],
)  # fmt: skip
def test_parameters(path: str, changes: Json, parameters: Json) -> None:
    """Fields travel under their own names, whole numbers as such, null not at all, unknown ones too."""
    assert decode(path, BASE[path] | changes).parameters == parameters


def test_messages() -> None:
    """Parts are joined, nothing is made of null, and what belongs to a message stays with it."""
    given = messages(
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "x", "name": "ann", "refusal": None},
        call(),
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "assistant", "content": "y", "tool_calls": []},
        {"role": "user", "content": ""},
    )
    request = decode(CHAT, given)
    assert request.signature == "chat"
    assert json.loads(request.inputs["messages"][0]) == [
        {"role": "developer", "content": "ab"},
        {"role": "user", "content": "x", "name": "ann"},
        call(),
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": ""},
    ]


def test_a_prefilled_answer_is_continued_if_asked() -> None:
    """The assistant's message at the end is no mistake then."""
    given = messages(user("a"), {"role": "assistant", "content": "b"}) | {"continue_final_message": True}
    assert json.loads(decode(CHAT, given).inputs["messages"][0])[1]["content"] == "b"


@pytest.mark.parametrize(
    ("path", "metadata"),
    [(CHAT, model("embed")), (TEXTS, model("embed")), (VECTORS, model()), (CHAT, model(chat=False))],
)
def test_a_model_of_another_kind(path: str, metadata: ModelMetadata) -> None:
    """It is not there for this call: 404, and the field is `model`."""
    if metadata.extras.get("chat") is False:
        metadata = ModelMetadata("m", 1, "", {"serving_default": metadata.signatures["serving_default"]})
    with pytest.raises(Refusal) as caught:
        decode(path, BASE[path], metadata)
    assert (caught.value.status, caught.value.param, caught.value.code) == (404, "model", None)


def test_a_model_that_calls_no_functions_says_so() -> None:
    """Tools are not dropped in silence."""
    with pytest.raises(Refusal, match="calls no functions") as caught:
        decode(CHAT, HELLO | {"tools": [TOOL]}, model(tools=False))
    assert (caught.value.param, caught.value.code) == ("tools", "unsupported_parameter")


def test_only_vectors_that_were_made_for_it_are_cut() -> None:
    """A matryoshka model takes fewer dimensions, and not more than it has."""
    metadata = model("embed", matryoshka=True)
    assert decode(VECTORS, {"input": "a", "dimensions": 2}, metadata).parameters["dimensions"] == 2
    with pytest.raises(Refusal):
        decode(VECTORS, {"input": "a", "dimensions": 5}, metadata)


def test_too_many_tokens_are_refused_by_their_number() -> None:
    """Before one of them is looked at."""
    with pytest.raises(Refusal) as caught:
        decode(TEXTS, {"prompt": [[1], ["x"] * 9]}, model(context_length=8))
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(Refusal):
        decode(VECTORS, {"input": [1] * 9}, model("embed", context_length=8))
    cut = decode(VECTORS, {"input": [1] * 9, "truncate": True}, model("embed", context_length=8))
    assert cut.parameters["prompt_token_ids"] == [[1] * 9]


def test_unknown_fields_may_be_refused() -> None:
    """A strict gateway tells of the first one."""
    with pytest.raises(Refusal) as caught:
        decode(CHAT, HELLO | {"novel": 1}, unknown_fields="refuse")
    assert (caught.value.param, caught.value.code) == ("novel", "unknown_parameter")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", MalformedBody),
        (b"[1]", MalformedBody),
        (b'{"model": "\xff"}', MalformedBody),
        (b'{"model": "\\ud800"}', MalformedBody),
        (b'{"temperature": NaN}', MalformedBody),
        (b"[" * 100_000, BodyTooLarge),
        (b'{"messages": [' + b"{}," * 65_536 + b"{}]}", BodyTooLarge),
        (b'{"x": "' + b"a" * (16 << 20) + b'"}', BodyTooLarge),
        (b'{"model": 3}', Refusal),
    ],
)
def test_what_is_no_body(body: bytes, error: type[GatewayError]) -> None:
    """It is refused before anything is made of it."""
    with pytest.raises(error):
        operation(CHAT).target(Call("POST", CHAT, body=body))


@pytest.mark.parametrize(("body", "name"), [({"model": "a/b:c"}, "a/b:c"), ({"model": ""}, None), ({}, None)])
def test_the_body_names_the_model(body: Json, name: str | None) -> None:
    """And nobody is guessed where it names none."""
    target = operation(CHAT).target(Call("POST", CHAT, body=json.dumps(body).encode()))
    assert (target.model, target.named, target.parsed) == (name, True, body)


@pytest.mark.parametrize(("path", "there"), [("/chat/completions", True), ("/v1/chat/completions", True)])
def test_bare_paths_are_a_choice(path: str, there: bool) -> None:
    """Without /v1 they answer only if that is configured."""
    bare = operation(CHAT, create(Config(bare_paths=True), DecodeLimits())).pattern
    usual = operation(CHAT).pattern
    assert bare is not None
    assert usual is not None
    assert bool(bare.fullmatch(path)) is there
    assert bool(usual.fullmatch(path)) is path.startswith("/v1")
