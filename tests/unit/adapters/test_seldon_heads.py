"""What stands in every answer's head, errors in both forms, and what models and the protocol say of themselves."""

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import validate
from seldon_requests import graph, spec, user_class

from adapters.seldon import Config, create, describe, errors
from gateway.errors import (
    GatewayError,
    InferenceFailed,
    MethodNotAllowed,
    Overloaded,
    RouteNotFound,
    UserError,
    UserFailed,
)
from gateway.interfaces import Answer, DecodeLimits, Describe, Infer, Operation, Ready
from gateway.paths import PathTable
from gateway.types import Call, InferenceRequest, ModelMetadata, Reply, Target

CLASS = user_class("predict")

# Heads...


def operation(path: str, method: str = "GET", config: Config | None = None) -> Operation:
    """What is done for that path."""
    adapter = create(config or Config(), DecodeLimits())
    return PathTable({"seldon": adapter}).find(Call(method, path)).operation


def heads(method: str = "GET", path: str = "/health/ping", config: Config | None = None, **sent: str) -> dict[str, str]:
    """The headers of an answer that needs no model."""
    found = operation(path, method, config)
    assert isinstance(found, Answer)
    headers = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in sent.items()]
    return dict(found.reply(Call(method, path, headers=headers, id="r-1")).headers)


def test_requests_have_ids() -> None:
    """The caller's own, or one that is the same on success and error."""
    adapter = create(Config(), DecodeLimits())
    made = heads()["Seldon-Puid"]
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made)
    failed = adapter.encode_error(RouteNotFound("x"), Call("GET", "/nope", id="r-1"))
    assert dict(failed.headers)["Seldon-Puid"] == made
    assert heads(seldon_puid="mine", x_request_id="other")["Seldon-Puid"] == "mine"
    assert heads(x_request_id="other")["Seldon-Puid"] == "other"
    assert heads(seldon_puid="x" * 300)["Seldon-Puid"] == made


def test_pages_of_any_origin_may_call() -> None:
    """As in Seldon, unless the configuration says which."""
    assert heads()["Access-Control-Allow-Origin"] == "*"
    assert heads(origin="http://x")["Access-Control-Allow-Origin"] == "http://x"
    some = Config(cors_origins=("http://x",))
    assert heads(config=some, origin="http://x")["Access-Control-Allow-Origin"] == "http://x"
    assert "Access-Control-Allow-Origin" not in heads(config=some, origin="http://y")
    assert heads(config=some)["Vary"] == "Origin"
    assert "Access-Control-Allow-Origin" not in heads(config=Config(cors_origins=()), origin="http://x")


def test_life_needs_no_model() -> None:
    """200 as long as the process answers."""
    found = operation("/live")
    assert isinstance(found, Answer)
    assert found.reply(Call("GET", "/live")).status == 200


def test_preflights_are_answered() -> None:
    """A browser learns what it may send."""
    asked = heads("OPTIONS", "/predict", origin="http://x", access_control_request_headers="x-a")
    assert asked["Access-Control-Allow-Headers"] == "x-a"
    assert "POST" in asked["Access-Control-Allow-Methods"]
    refused = heads("OPTIONS", "/api/v1.0/predictions", Config(cors_origins=()), origin="http://x")
    assert refused == {}


def test_cloud_events_are_spoken_to_who_speaks_them() -> None:
    """Only a request that is one gets an answer that is one."""
    assert heads(ce_specversion="1.0")["Ce-Path"] == "/health/ping"
    assert not any(name.startswith("Ce-") for name in heads())


# Errors...


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (UserError("no", 418, "MINE"), 418, {"code": -1, "info": "no", "reason": "MINE", "status": 1}),
        (UserFailed("no", 502), 502, {"code": -1, "info": "no", "reason": "MICROSERVICE_INTERNAL_ERROR", "status": 1}),
        (InferenceFailed(""), 500, {"code": -1, "info": "", "reason": "MICROSERVICE_INTERNAL_ERROR", "status": 1}),
        (UserError("\ud800"), 400, {"code": -1, "info": "?", "reason": "MICROSERVICE_BAD_DATA", "status": 1}),
        (errors.BadMetric("b"), 500, {"code": -1, "info": "b", "reason": "MICROSERVICE_BAD_METRIC", "status": 1}),
        (Overloaded("full"), 503, {"code": 503, "info": "full", "reason": "UNAVAILABLE", "status": "FAILURE"}),
    ],
)
def test_error_is_told_in_its_form(error: GatewayError, status: int, body: dict[str, Any]) -> None:
    """The wrapper's for what is about message or model, the executor's for everything else."""
    found = create(Config(), DecodeLimits()).encode_error(error, Call("POST", "/predict"))
    assert (found.status, json.loads(found.body)) == (status, {"status": body})


def test_class_answers_errors_in_its_own_words() -> None:
    """A custom error handler's body is sent as it is."""
    found = create(Config(), DecodeLimits()).encode_error(UserError("x", 402, body={"a": 1 << 70}), Call("GET", "/"))
    assert (found.status, json.loads(found.body)) == (402, {"a": 1 << 70})


def test_allowed_methods_are_told() -> None:
    """405 comes with what HTTP wants beside it."""
    found = create(Config(), DecodeLimits()).encode_error(MethodNotAllowed("x", ["GET"]), Call("PUT", "/predict"))
    assert ("Allow", "GET") in found.headers


# Descriptions...


def test_graph_describes_itself() -> None:
    """Name, versions, platform and tensors, in the wrapper's form."""
    found = operation("/metadata")
    assert isinstance(found, Describe)
    body = found.encode(graph(x=spec("float32", None, 2), s=spec("string")), Call("GET", "/metadata"), Target()).body
    assert json.loads(body) == {
        "name": "m",
        "versions": ["1"],
        "platform": "onnx",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "s", "datatype": "BYTES", "shape": []},
        ],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": []}],
        "custom": {},
    }


def test_class_is_described_by_itself_and_its_environment() -> None:
    """What init_metadata says; MODEL_METADATA wins, and the image's name stands in for both."""
    image = {"PREDICTIVE_UNIT_IMAGE": "repo/img:2.0"}
    assert describe.describe(user_class(environment=image))["name"] == "repo/img"
    both = image | {"MODEL_METADATA": '{"platform": "p"}'}
    found = describe.describe(user_class(environment=both, init_metadata={"name": "n", "platform": "q"}))
    assert (found["name"], found["versions"], found["platform"]) == ("n", ["2.0"], "p")


@pytest.mark.parametrize(
    "given",
    [
        {"name": 5},
        {"nope": 1},
        {"versions": "v1"},
        {"versions": [1]},
        {"custom": {"a": 1}},
        {"custom": []},
        {"inputs": [5]},
        {"inputs": [{"messagetype": 5}]},
        {"inputs": [{"name": "x", "datatype": "FP32"}]},
        [],
        5,
    ],
)
def test_bad_metadata_is_the_models_fault(given: Any) -> None:
    """As in the wrapper, only who asks for it sees that."""
    if given:
        with pytest.raises(errors.BadMetadata, match="Model metadata unavailable"):
            describe.describe(user_class(init_metadata=given))
    with pytest.raises(errors.BadMetadata):
        describe.describe(user_class(environment={"MODEL_METADATA": f"no JSON: {given}"}))


def test_protocol_describes_itself() -> None:
    """The OpenAPI document names only paths that are served, and schemas that it has."""
    found = operation("/seldon.json")
    assert isinstance(found, Answer)
    body = found.reply(Call("GET", "/seldon.json")).body
    document = json.loads(body)
    for path, methods in document["paths"].items():
        for method in methods:
            assert operation(path, method.upper())
    named = set(re.findall(r'"#/components/schemas/(\w+)"', body.decode()))
    assert named <= document["components"]["schemas"].keys()
    validate(document)


def test_readiness_is_a_status() -> None:
    """200 or 503, and no body."""
    found = operation("/ready")
    assert isinstance(found, Ready)
    assert [found.encode(ready, Call("GET", "/ready")).status for ready in (True, False)] == [200, 503]
    assert create(Config(), DecodeLimits()).claims(Call("GET", "/api/v1.0/nope")) == 1
    assert create(Config(), DecodeLimits()).claims(Call("GET", "/v1/models")) == 0


def test_health_is_the_classs_word() -> None:
    """A class is asked; everything else is healthy."""
    found = operation("/health/status")
    assert isinstance(found, Infer)
    call = Call("GET", "/health/status")
    asked = found.decode(call, Target(), ModelMetadata("m", 1, "x", {"health_status": CLASS.signatures["route"]}))
    assert isinstance(asked, InferenceRequest)
    healthy = found.decode(call, Target(), graph(x=spec("float32")))
    assert isinstance(healthy, Reply)
    assert json.loads(healthy.body) == {"strData": "healthy", "meta": {}}
