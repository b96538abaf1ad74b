"""The two faces of SageMaker: paths, headers, types, events, and answers that come later."""

import asyncio
import json
from collections.abc import AsyncGenerator

import numpy as np
import pytest
from conformance.sagemaker.cases import events
from sagemaker_calls import ADAPTER, MODEL, answer, call, headers_of, operation

from adapters.sagemaker import Config, create
from adapters.sagemaker.errors import InvalidParameter
from adapters.sagemaker.runtime import event_stream
from gateway import errors
from gateway.errors import GatewayError
from gateway.interfaces import (
    DecodeLimits,
    Defer,
    Infer,
    Results,
)
from gateway.paths import PathTable
from gateway.types import Call, InferenceResponse, ModelMetadata, ResponseForm, Target

# Paths...


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/ping", "Ready"),
        ("HEAD", "/ping", "Ready"),
        ("POST", "/invocations", "Infer"),
        ("GET", "/execution-parameters", "Answer"),
        ("POST", "/models", "Manage"),
        ("GET", "/models", "Manage"),
        ("GET", "/models/m", "Manage"),
        ("DELETE", "/models/m", "Manage"),
        ("POST", "/models/m/invoke", "Infer"),
        ("POST", "/endpoints/m/invocations", "Infer"),
        ("POST", "/endpoints/m/invocations-response-stream", "Infer"),
        ("POST", "/endpoints/m/async-invocations", "Defer"),
    ],
)
def test_paths_are_understood(method: str, path: str, kind: str) -> None:
    """Every path of both faces, and everything below them is claimed."""
    assert type(operation(call(method, path))).__name__ == kind
    assert ADAPTER.claims(Call(method, path)) == 1


def test_other_paths_are_not_claimed() -> None:
    """Other protocols' paths are left to them; a slash too many is not."""
    assert [ADAPTER.claims(Call("POST", path)) for path in ("/v1/models/m:predict", "/v2/models", "/")] == [0, 0, 0]
    assert ADAPTER.claims(Call("POST", "/invocations/")) == 1


@pytest.mark.parametrize(
    ("name", "headers", "target"),
    [
        ("m", {}, Target("m")),
        ("arn%3Aaws%3Asagemaker%3Aus-east-1%3A123456789012%3Aendpoint%2Fm", {}, Target("m")),
        ("m", {"x_amzn_sagemaker_target_variant": "blue"}, Target("m", label="blue")),
        ("m", {"x_amzn_sagemaker_target_variant": "AllTraffic"}, Target("m")),
        ("many", {"x_amzn_sagemaker_target_model": "some/folder/one.tar.gz"}, Target("one")),
        ("many", {"x_amzn_sagemaker_target_model": "one"}, Target("one")),
        ("many", {"x_amzn_sagemaker_inference_component": "two"}, Target("two")),
    ],
)
def test_endpoint_names_the_service(name: str, headers: dict[str, str], target: Target) -> None:
    """By name or ARN; a variant is a label; on multi-model endpoints a header names the model."""
    made = call("POST", f"/endpoints/{name}/invocations", **headers)
    assert operation(made).target(made) == target


@pytest.mark.parametrize(
    ("name", "headers", "text"),
    [
        ("my%20m", {}, "'my m' is no name of an endpoint"),
        ("-m", {}, "'-m' is no name of an endpoint"),
        ("m", {"x_amzn_sagemaker_target_model": "one"}, "Endpoint m is not a multi-model endpoint"),
        ("m", {"x_amzn_sagemaker_inference_component": "one"}, "Endpoint m is not a multi-model endpoint"),
        ("many", {}, "Endpoint many is a multi-model endpoint: name the model by TargetModel"),
        ("m", {"x_amzn_sagemaker_custom_attributes": "a" * 1025}, "CustomAttributes must be ASCII, at most 1024"),
        ("m", {"x_amzn_sagemaker_custom_attributes": "ä"}, "CustomAttributes must be ASCII, at most 1024"),
    ],
)
def test_parameters_that_the_api_refuses(name: str, headers: dict[str, str], text: str) -> None:
    """They are the caller's mistake, not the model's."""
    made = call("POST", f"/endpoints/{name}/invocations", **headers)
    with pytest.raises(InvalidParameter) as caught:
        operation(made).target(made)
    assert str(caught.value).startswith(text)
    reply = ADAPTER.encode_error(caught.value, made)
    assert (reply.status, headers_of(reply)["x-amzn-errortype"]) == (400, "ValidationError")


# Requests and replies...


def test_container_answers_plainly() -> None:
    """Bare Content-Type, and no header that the model has not set; the model sees what SageMaker sends along."""
    made = call(
        "POST", "/invocations", b"1,2", content_type="text/csv", accept="application/json; verbose=true",
        x_amzn_sagemaker_custom_attributes="a=b", x_amzn_sagemaker_session_id="NEW_SESSION",
        x_amzn_sagemaker_inference_id="i-1",
    )  # fmt: skip
    reply, request = answer(made)
    assert (reply.body, reply.media_type, reply.headers) == (
        b'{"predictions":[{"x":[1.0,2.0]}]}',
        "application/json",
        (),
    )
    assert request.parameters == {"custom_attributes": "a=b", "session_id": "NEW_SESSION"}
    assert request.id == "i-1"


def test_headers_that_a_model_sets() -> None:
    """Attributes and sessions come back on both faces, on one line."""
    given = {"custom_attributes": "c=\nd", "new_session_id": "s; Expires=2030-01-01T00:00:00Z", "other": "x"}
    for path in ("/invocations", "/endpoints/m/invocations"):
        reply, _ = answer(call("POST", path, b"1,2", content_type="text/csv"), **given)
        shown = {name: value for name, value in headers_of(reply).items() if "sagemaker" in name}
        assert shown == {
            "x-amzn-sagemaker-custom-attributes": "c= d",
            "x-amzn-sagemaker-new-session-id": "s; Expires=2030-01-01T00:00:00Z",
        }


def test_endpoint_answers_with_its_variant_and_id() -> None:
    """The headers that botocore reads into its answer."""
    made = call("POST", "/endpoints/m/invocations", b"1,2", x_amzn_sagemaker_target_variant="blue")
    reply, _ = answer(made)
    assert headers_of(reply) == {"x-amzn-invoked-production-variant": "blue", "x-amzn-requestid": "r-1"}


@pytest.mark.parametrize(
    ("accept", "response", "expected"),
    [
        (None, "", "text/csv"),
        ("*/*", "", "text/csv"),
        (None, "application/x-npy", "application/x-npy"),
        ("application/json", "application/x-npy", "application/json"),
        ("text/*, application/json;q=0.1", "application/x-npy", "text/csv"),
    ],
)
def test_default_type_of_the_answer(accept: str | None, response: str, expected: str) -> None:
    """The model's own default before the configuration's; a caller who names a type gets it."""
    headers = {} if accept is None else {"accept": accept}
    made = call("POST", "/invocations", b"1,2", content_type="text/csv", **headers)
    model = ModelMetadata("m", 1, "none", MODEL.signatures, ResponseForm(accept=response))
    request = operation(made).decode(made, Target(), model)
    reply = operation(made).encode(InferenceResponse(dict(request.inputs)), request, made)
    assert reply.media_type == expected


def test_body_is_judged_before_the_answers_type() -> None:
    """Where both are wrong, the body's fault is told."""
    made = call("POST", "/invocations", b"1,2", content_type="application/xml", accept="text/html")
    with pytest.raises(errors.UnsupportedMedia):
        operation(made).decode(made, Target(), MODEL)
    made = call("POST", "/invocations", b"1,2", content_type="text/csv", accept="text/html")
    with pytest.raises(errors.NotAcceptable, match="application/json, application/jsonlines, text/csv"):
        operation(made).decode(made, Target(), MODEL)


def test_documents_and_records_come_back_alike() -> None:
    """Documents back to back are answered a line each, and records carry their uid."""
    reply, _ = answer(
        call("POST", "/invocations", b"[1,2][3,4]", content_type="application/json", accept="application/json")
    )
    assert reply.body == b'{"predictions":[{"x":[1.0,2.0]}]}\n{"predictions":[{"x":[3.0,4.0]}]}\n'


# Streams...


@pytest.mark.parametrize(
    ("path", "body", "streams"),
    [
        ("/invocations", b"[1,2]", False),
        ("/invocations", b'{"instances": [[1,2]], "stream": true}', True),
        ("/invocations", b'{"instances": [[1,2]], "stream": false}', False),
        ("/endpoints/m/invocations", b'{"instances": [[1,2]], "stream": true}', False),
        ("/endpoints/m/invocations-response-stream", b"[1,2]", True),
    ],
)
def test_who_gets_parts(path: str, body: bytes, streams: bool) -> None:
    """The stream's path always, the container's when the body asks, the plain endpoint never."""
    made = call("POST", path, body, content_type="application/json")
    assert operation(made).decode(made, Target(), MODEL).stream == streams


async def failing(*chunks: bytes, error: Exception | None = None) -> AsyncGenerator[bytes]:
    """Chunks, and then an error."""
    for chunk in chunks:
        yield chunk
    if error is not None:
        raise error


def collected(error: Exception | None) -> list[tuple[dict[str, str], bytes]]:
    """The events of a stream that ends so."""

    async def collect() -> bytes:
        made = call("POST", "/endpoints/m/invocations-response-stream")
        reply = event_stream(failing(b"a\n", b"b\n", error=error), "application/jsonlines", made)
        assert reply.media_type == "application/vnd.amazon.eventstream"
        assert headers_of(reply)["x-amzn-sagemaker-content-type"] == "application/jsonlines"
        assert not isinstance(reply.body, bytes)
        return b"".join([frame async for frame in reply.body])

    return list(events(asyncio.run(collect())))


def test_events_of_a_whole_stream() -> None:
    """One event for each part, and nothing more."""
    assert [(headers[":event-type"], payload) for headers, payload in collected(None)] == [
        ("PayloadPart", b"a\n"),
        ("PayloadPart", b"b\n"),
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InferenceFailed("backend\nfailed"), "StreamBroken"),
        (errors.DeadlineExceeded("backend failed"), "ModelInvocationTimeExceeded"),
    ],
)
def test_failure_is_the_last_event(error: GatewayError, code: str) -> None:
    """A failure on the way is told, since clients take any other end for a good one."""
    headers, payload = collected(error)[-1]
    assert (headers[":message-type"], headers[":exception-type"]) == ("exception", "ModelStreamError")
    assert json.loads(payload) == {"Message": "backend failed", "ErrorCode": code}


def test_bug_is_told_too() -> None:
    """An exception that is none of the house ends in an event without details, and goes on to the log."""
    frames = []

    async def collect() -> None:
        reply = event_stream(failing(error=ValueError("secret")), "text/csv", call("POST", "/endpoints/m/invocations"))
        assert not isinstance(reply.body, bytes)
        async for frame in reply.body:
            frames.append(frame)  # noqa: PERF401 - they must be kept when the error comes

    with pytest.raises(ValueError, match="secret"):
        asyncio.run(collect())
    [(headers, payload)] = events(b"".join(frames))
    assert headers[":exception-type"] == "InternalStreamFailure"
    assert b"secret" not in payload


# Later...


def test_deferred_call() -> None:
    """Type and accepted type have headers of their own, and the answer says where the prediction will lie."""
    made = call(
        "POST", "/endpoints/m/async-invocations", b"1,2", content_type="application/xml",
        x_amzn_sagemaker_content_type="text/csv", x_amzn_sagemaker_accept="application/jsonlines",
        x_amzn_sagemaker_inference_id="mine",
    )  # fmt: skip
    found = operation(made)
    assert isinstance(found, Defer)
    assert (found.id(made), found.input_uri(made)) == ("mine", None)
    reply, _ = answer(made)
    assert (reply.body, reply.media_type) == (b'{"x":[1.0,2.0]}\n', "application/jsonlines")
    taken = found.accepted(Results("mine", "s3://out/mine.out", "s3://out/mine.error"), made)
    assert (taken.status, taken.body) == (202, b'{"InferenceId":"mine"}')
    assert headers_of(taken) == {
        "x-amzn-sagemaker-outputlocation": "s3://out/mine.out",
        "x-amzn-sagemaker-failurelocation": "s3://out/mine.error",
        "x-amzn-requestid": "r-1",
    }


def test_input_by_location() -> None:
    """Where the body lies, in place of the body."""
    made = call("POST", "/endpoints/m/async-invocations", x_amzn_sagemaker_inputlocation="s3://in/a.csv")
    assert operation(made).input_uri(made) == "s3://in/a.csv"


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        (b"1,2", {"x_amzn_sagemaker_inputlocation": "s3://in/a"}, "InputLocation and Body must not both be given"),
        (b"", {}, "One of InputLocation and Body must be given"),
        (b"1" * 128_001, {}, "Body must have at most 128000 bytes here"),
    ],
)
def test_input_is_in_one_place(body: bytes, headers: dict[str, str], text: str) -> None:
    """Just one of body and location, and no body that is too large for it."""
    made = call("POST", "/endpoints/m/async-invocations", body, **headers)
    with pytest.raises(InvalidParameter) as caught:
        operation(made).input_uri(made)
    assert str(caught.value).startswith(text)


def test_unknown_location_is_a_validation_error() -> None:
    """What is wrong with the location of a deferred call is the caller's mistake."""
    made = call("POST", "/endpoints/m/async-invocations")
    reply = ADAPTER.encode_error(errors.MalformedBody("under no known prefix"), made)
    assert (reply.status, headers_of(reply)["x-amzn-errortype"]) == (400, "ValidationError")


def test_default_content_type() -> None:
    """What a body without a type is, if the configuration says so."""
    lines = create(Config(default_content_type="application/jsonlines"), DecodeLimits())
    found = PathTable({"s": lines}).find(Call("POST", "/invocations")).operation
    assert isinstance(found, Infer)
    request = found.decode(call("POST", "/invocations", b"[1,2]\n[3,4]"), Target(), MODEL)
    assert np.array_equal(request.inputs["x"], [[1, 2], [3, 4]])
