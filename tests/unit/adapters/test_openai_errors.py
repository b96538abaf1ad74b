"""OpenAI's errors and models: what is told of a mistake, which models are listed, and whose call it is."""

import json
from typing import Any

import pytest

from adapters.openai import Config, create
from gateway.errors import (
    ContextTooLong,
    GatewayError,
    InvalidTensor,
    ModelNotFound,
    NotReady,
    Overloaded,
    RouteNotFound,
)
from gateway.interfaces import DecodeLimits, Index, Status
from gateway.types import Call, ModelMetadata, ModelStatus, Signature, Target, TensorSpec, VersionStatus

CHAT, TEXTS, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


@pytest.mark.parametrize(
    ("error", "path", "status", "param", "code", "text"),
    [
        (InvalidTensor("parameters.stop: no"), CHAT, 400, "stop", "invalid_value", "stop: no"),
        (InvalidTensor("parameters.a.b: no"), CHAT, 400, "a.b", "invalid_value", "a.b: no"),
        (InvalidTensor("parameters.prompt_token_ids: no"), TEXTS, 400, "prompt", "invalid_value", "prompt: no"),
        (InvalidTensor("parameters.prompt_token_ids: no"), VECTORS, 400, "input", "invalid_value", "input: no"),
        (InvalidTensor("messages[0].role: no"), CHAT, 400, "messages[0].role", "invalid_value", "messages[0].role: no"),
        (InvalidTensor("it is wrong: so"), CHAT, 400, None, "invalid_value", "it is wrong: so"),
        (ContextTooLong("messages: long"), CHAT, 400, "messages", "context_length_exceeded", "messages: long"),
        (ContextTooLong("long"), TEXTS, 400, "prompt", "context_length_exceeded", "long"),
        (ContextTooLong("text: long"), VECTORS, 400, "input", "context_length_exceeded", "input: long"),
        (ModelNotFound("no", "x"), CHAT, 404, "model", "model_not_found", "no"),
        (ModelNotFound("which?"), CHAT, 400, "model", "missing_required_parameter", "which?"),
        (ModelNotFound("no"), "/v1/models/x", 404, "model", "model_not_found", "no"),
        (RouteNotFound("no"), "/v1/x", 404, None, None, "no"),
        (NotReady("soon"), CHAT, 503, None, "model_not_ready", "soon"),
    ],
)
def test_errors(error: GatewayError, path: str, status: int, param: str | None, code: str | None, text: str) -> None:
    """All four members always; the field by the name that the client knows."""
    reply = create(Config(), DecodeLimits()).encode_error(error, Call("POST", path))
    assert isinstance(reply.body, bytes)
    told = json.loads(reply.body)["error"]
    assert sorted(told) == ["code", "message", "param", "type"]
    assert (reply.status, told["param"], told["code"]) == (status, param, code)
    assert told["message"].endswith(text)


@pytest.mark.parametrize("error", [Overloaded("full"), NotReady("soon")])
def test_what_may_be_repeated_says_when(error: GatewayError) -> None:
    """Also where nobody knows: in a second."""
    reply = create(Config(), DecodeLimits()).encode_error(error, Call("POST", CHAT))
    assert dict(reply.headers)["Retry-After"] == "1"


# Models...

TEXT, VECTOR = TensorSpec("text", "string", (None,)), TensorSpec("embedding", "float32", (None, 3))
EMBEDDER = ModelMetadata(
    "e", 1, "", {"serving_default": Signature("serving_default", "predict", {"text": TEXT}, {"embedding": VECTOR})}
)


def _status(metadata: ModelMetadata | None, state: Any = "AVAILABLE") -> ModelStatus:
    return ModelStatus("m", (VersionStatus(1, state),), metadata=metadata, aliases=("org/m",))


PLAIN = ModelMetadata("p", 1, "", {})
TOLD = ModelMetadata("t", 1, "", {}, extras={"task": "generate", "created": 7, "context_length": 64})


@pytest.mark.parametrize(
    ("status", "card"),
    [
        (_status(TOLD), {"created": 7, "max_model_len": 64}),
        (_status(EMBEDDER), {"created": 0}),
        (_status(None, "LOADING"), {"created": 0}),
        (_status(None, "END"), None),
        (_status(PLAIN), None),
    ],
)
def test_which_models_are_listed(status: ModelStatus, card: dict[str, Any] | None) -> None:
    """Those that write or embed text, under all their names, and those of which nobody knows yet."""
    routes = create(Config(), DecodeLimits()).routes()
    (index, one) = [found for found in routes if isinstance(found, Index | Status)]
    assert isinstance(index, Index)
    assert isinstance(one, Status)
    call = Call("GET", "/v1/models")
    expected = [] if card is None else [{"id": name, "object": "model", "owned_by": "tensorgate"} | card
                                        for name in ("m", "org/m")]  # fmt: skip
    listed = index.encode([status], call).body
    assert isinstance(listed, bytes)
    assert json.loads(listed) == {"object": "list", "data": expected}
    if card is None:
        with pytest.raises(ModelNotFound):
            one.encode(status, call, Target("m"))
    else:
        told = one.encode(status, call, Target("org/m")).body
        assert isinstance(told, bytes)
        assert json.loads(told) == expected[1]


@pytest.mark.parametrize(
    ("method", "path", "headers", "claim"),
    [
        ("GET", "/v1/x", [], 1),
        ("GET", "/v1/x", [(b"authorization", b"bearer k")], 3),
        ("GET", "/v1/x", [(b"authorization", b"APPCODE k")], 1),
        ("GET", "/v1/x", [(b"x-stainless-os", b"Linux")], 3),
        ("POST", "/v1/models/m:predict", [(b"x-stainless-os", b"Linux")], 1),
        ("GET", "/v1/models/m/metadata", [(b"x-stainless-os", b"Linux")], 1),
        ("GET", "/v1/models/org/m:tag", [(b"x-stainless-os", b"Linux")], 3),
        ("GET", "/v1/completions", [], 3),
        ("GET", "/openai/v1/x", [], 3),
        ("GET", "/v2/x", [(b"x-stainless-os", b"Linux")], 0),
        ("GET", "/", [], 0),
    ],
)
def test_claims(method: str, path: str, headers: list[tuple[bytes, bytes]], claim: int) -> None:
    """Its own paths surely; the rest below /v1 by its clients' headers; what only TF Serving has hardly."""
    assert create(Config(), DecodeLimits()).claims(Call(method, path, headers=headers)) == claim
