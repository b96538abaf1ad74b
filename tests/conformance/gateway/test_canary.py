"""A canary over every protocol: its share, the header that wins over it, and who answered."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from conformance.v2.conftest import free_port
from conformance.v2.stub import Stub
from live import LiveGateway, gateway, put_echo

from adapters import _inference_pb2 as pb

CHAT = Path(__file__).resolve().parents[3] / "configs" / "models" / "tinychat"
CONFIG = """
models_dir = "models"
[models]
tinychat = {chat}
[gateway]
grpc_port = {grpc}
[results]
dir = "results"
[services.digits]
model = "old"
[services.digits.canary]
model = "new"
weight = 30
[services.talk]
model = "tinychat"
[services.talk.canary]
weight = 30
[services.missing]
model = "old"
[services.missing.canary]
model = "nowhere"
weight = 100
[services.watched]
model = "old"
[services.watched.canary]
model = "off"
shadow = {{ percent = 50 }}
"""

Ask = Callable[[LiveGateway, str], tuple[str, str]]
"""Sends one call, with that header `Canary` if any; returns the variant and the answer's text."""


@pytest.fixture(scope="module")
def grpc_port() -> int:
    """Where the gateway below speaks gRPC."""
    return free_port()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, grpc_port: int) -> Iterator[LiveGateway]:
    """Canaries of another signature, of a language model, one that is missing and one that gets copies only."""
    base = tmp_path_factory.mktemp("canary")
    put_echo(base / "models", "old", '[echo]\n[echo.inputs.x]\ndtype = "float32"\nshape = [-1]\n')
    put_echo(base / "models", "new", '[echo]\nsuffix = "_new"\n[echo.inputs.y]\ndtype = "int32"\nshape = [-1]\n')
    put_echo(base / "models", "off", '[echo]\nsuffix = "_off"\n[echo.inputs.x]\ndtype = "float16"\nshape = [-1]\n')
    (base / "gateway.toml").write_text(CONFIG.format(chat=json.dumps(str(CHAT)), grpc=grpc_port))
    with gateway(base / "gateway.toml") as running:
        running.wait_until("/readyz", 200)
        yield running


def post(live: LiveGateway, path: str, wish: str, body: Any, **headers: str) -> httpx.Response:
    """A call with that wish."""
    if wish:
        headers["Canary"] = wish
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(live.url + path, content=content, headers=headers, timeout=30)


def said(reply: httpx.Response) -> tuple[str, str]:
    """Who answered, and what."""
    assert reply.is_success, reply.text
    return reply.headers["x-tensorgate-variant"], reply.text


def tfserving(live: LiveGateway, wish: str) -> tuple[str, str]:
    return said(post(live, "/v1/models/digits:predict", wish, {"inputs": [7]}))


def seldon(live: LiveGateway, wish: str) -> tuple[str, str]:
    return said(post(live, "/services/digits/api/v1.0/predictions", wish, {"data": {"ndarray": [7]}}))


def sagemaker(live: LiveGateway, wish: str) -> tuple[str, str]:
    return said(post(live, "/endpoints/digits/invocations", wish, {"instances": [7]}))


def later(live: LiveGateway, wish: str) -> tuple[str, str]:
    media = {"X-Amzn-SageMaker-Content-Type": "application/json"}
    return said(post(live, "/endpoints/digits/async-invocations", wish, {"instances": [7]}, **media))


def nameless(live: LiveGateway, wish: str) -> tuple[str, str]:
    return said(post(live, "/v1/models:predict", wish, {"instances": [7]}, **{"X-Tensorgate-Service": "digits"}))


def chat(live: LiveGateway, wish: str) -> tuple[str, str]:
    body = {"model": "talk", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "stream": True}
    variant, text = said(post(live, "/v1/chat/completions", wish, body))
    assert text.endswith("data: [DONE]\n\n")
    return variant, text


@pytest.mark.parametrize("ask", [tfserving, seldon, sagemaker, later, nameless, chat])
def test_every_protocol_shares_exactly(live: LiveGateway, ask: Ask) -> None:
    """Of twenty calls in a row the canary answers six, and pinned ones between them take no turn."""
    variants = []
    for _ in range(20):
        assert ask(live, "Always")[0] == "canary"
        assert ask(live, "never")[0] == "stable"
        variants.append(ask(live, "")[0])
    assert variants.count("canary") == 6


def test_grpc_shares_exactly(live: LiveGateway, grpc_port: int) -> None:
    """The variant stands in the trailing metadata; each model is asked by its own signature."""

    def ask(name: str, datatype: str, **metadata: str) -> tuple[str, str]:
        message = pb.ModelInferRequest(model_name="digits")
        tensor = message.inputs.add(name=name, datatype=datatype, shape=[1])
        (tensor.contents.fp32_contents if datatype == "FP32" else tensor.contents.int_contents).append(7)
        answer, call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=pb.ModelInferResponse.FromString,
        ).with_call(message, metadata=[*metadata.items()])
        return dict(call.trailing_metadata())["x-tensorgate-variant"], answer.outputs[0].name

    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        assert ask("y", "INT32", canary="Always") == ("canary", "y_new")
        assert ask("x", "FP32", canary="Never") == ("stable", "x")
        with pytest.raises(grpc.RpcError) as refused:
            ask("x", "FP32", canary="maybe")
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert Stub(channel)("ModelReady", pb.ModelReadyRequest(name="digits")).ready


def test_the_model_that_was_picked_reads_the_body(live: LiveGateway) -> None:
    """Another model may take other tensors: 7.5 is a float32, and no int32."""
    body = {"inputs": [7.5]}
    stable = post(live, "/v1/models/digits:predict", "Never", body)
    canary = post(live, "/v1/models/digits:predict", "Always", body)
    assert (stable.status_code, stable.json()) == (200, {"outputs": [7.5]})
    assert (canary.status_code, canary.headers["x-tensorgate-variant"]) == (400, "canary")


def test_a_version_in_the_path_means_the_stable_one(live: LiveGateway) -> None:
    """Unless the header says Always."""
    path = "/v1/models/digits/versions/1:predict"
    for _ in range(10):
        assert said(post(live, path, "", {"inputs": [7]}))[0] == "stable"
    assert said(post(live, path, "Always", {"inputs": [7]}))[0] == "canary"


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/v1/models/digits:predict", lambda body: body["error"]),
        ("/v2/models/digits/infer", lambda body: body["error"]),
        ("/services/digits/api/v1.0/predictions", lambda body: body["status"]["info"]),
        ("/services/digits/invocations", lambda body: body["message"]),
        ("/services/talk/v1/chat/completions", lambda body: body["error"]["message"]),
    ],
)
def test_an_unknown_wish_is_a_mistake(live: LiveGateway, path: str, where: Callable[[Any], str]) -> None:
    """Told in the caller's dialect, with what was expected."""
    inputs = [{"name": "x", "shape": [1], "datatype": "FP32", "data": [7]}]
    messages = [{"role": "user", "content": "hi"}]
    body = {"instances": [7]} if "v2" not in path and "chat" not in path else {"inputs": inputs, "messages": messages}
    if "api" in path:
        body = {"data": {"ndarray": [7]}}
    reply = post(live, path, "Sometimes", body)
    assert (reply.status_code, where(reply.json())) == (
        400,
        "the header Canary must be Always or Never, got 'Sometimes'",
    )


def test_a_canary_that_is_not_there_fails_nobody(live: LiveGateway) -> None:
    """The stable deployment answers; who insists gets a 503, and the operator a metric and a line in the log."""
    for _ in range(3):
        assert said(post(live, "/v1/models/missing:predict", "", {"inputs": [7]}))[0] == "stable"
    insisted = post(live, "/v1/models/missing:predict", "Always", {"inputs": [7]})
    assert insisted.status_code == 503
    assert insisted.json()["error"] == (
        "the canary of the service missing does not answer: there is no model 'nowhere'"
    )
    live.wait_for_metric("tensorgate_canary_missed_total", 3, service="missing")
    assert "services.missing.canary: the stable deployment answers in its place" in live.errors()


def test_copies_are_compared_and_cost_the_caller_nothing(live: LiveGateway) -> None:
    """Every second request is copied: a canary of half the precision answers 4096 where 4096.5 was asked for."""
    for value in (1.0, 2.0, 3.0, 4096.5):
        variant, text = said(post(live, "/v1/models/watched:predict", "", {"inputs": [value]}))
        assert (variant, json.loads(text)) == ("stable", {"outputs": [value]})
    live.wait_for_metric("tensorgate_shadow_requests_total", 2, service="watched")
    results = {
        result: live.metric("tensorgate_shadow_requests_total", service="watched", result=result)
        for result in ("same", "different", "failed", "skipped")
    }
    assert results == {"same": 1, "different": 1, "failed": 0, "skipped": 0}
    assert live.metric("tensorgate_shadow_largest_difference", service="watched", output="x") == 0.5
    assert live.metric("tensorgate_variant_seconds_count", service="watched", variant="stable") == 4


def test_metadata_tells_of_either(live: LiveGateway) -> None:
    """Of the stable one, unless the header says Always; that is no answer of a model, and counts for none."""
    before = live.metric("tensorgate_variant_seconds_count", service="digits")

    def inputs(**headers: str) -> list[dict[str, Any]]:
        described = httpx.get(f"{live.url}/v2/models/digits", headers=headers).json()
        assert described["name"] == "digits"
        found: list[dict[str, Any]] = described["inputs"]
        return found

    assert [inputs()[0]["name"] for _ in range(10)] == ["x"] * 10
    assert inputs(Canary="Always")[0] == {"name": "y", "datatype": "INT32", "shape": [-1]}
    assert live.metric("tensorgate_variant_seconds_count", service="digits") == before


def test_the_log_names_the_variant(live: LiveGateway) -> None:
    """So that one variant's requests can be found."""
    tfserving(live, "Always")
    live.wait_for_log('"variant":"canary"')
