"""What v2 does where no well-behaved model and no live gateway goes."""

import asyncio
import json
from collections.abc import AsyncIterator
from importlib import metadata as installed
from typing import Any

import numpy as np
import pytest
from v2_calls import ADAPTER, ONE, POST, RPC, decoded, model, operation

from adapters._inference_pb2 import ModelInferRequest, ModelInferResponse
from adapters.v2 import Config, describe, errors, raw
from gateway.errors import (
    GatewayError,
    InferenceFailed,
    InvalidTensor,
    LabelNotFound,
    MethodNotAllowed,
    ModelNotFound,
    NotReady,
    Overloaded,
    Unauthenticated,
    UserError,
    UserFailed,
)
from gateway.interfaces import Infer
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    ModelStatus,
    Reply,
    Signature,
    Target,
    TensorSpec,
    VersionStatus,
)

# Errors...


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ModelNotFound("no service", "m"), 404, "Model m not found: no service"),
        (ModelNotFound("no version", "m", 2), 404, "Model m with version 2 not found: no version"),
        (LabelNotFound("no label", "m", "old"), 404, "no label"),
        (ModelNotFound("who?"), 404, "who?"),
        (UserError("no", status=422), 422, "no"),
        (UserFailed("broken", status=599), 599, "broken"),
    ],
)
def test_error_body(error: GatewayError, status: int, text: str) -> None:
    """The body has the words that clients know; a user's class chooses its own status."""
    reply = ADAPTER.encode_error(error, POST)
    assert (reply.status, json.loads(reply.body)) == (status, {"error": text})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "header"),
    [
        (MethodNotAllowed("no", ["GET", "POST"]), ("Allow", "GET, POST")),
        (Unauthenticated("no"), ("WWW-Authenticate", 'APPCODE realm="tensorgate", Bearer realm="tensorgate"')),
        (NotReady("no", retry_after=0.2), ("Retry-After", "1")),
    ],
)
def test_error_headers(error: GatewayError, header: tuple[str, str]) -> None:
    """HTTP's own headers are there."""
    assert ADAPTER.encode_error(error, POST).headers == (header,)


def test_error_over_grpc() -> None:
    """A gRPC error is a code and a text, and says when to try again."""
    reply = ADAPTER.encode_error(Overloaded("later", retry_after=1.5), RPC)
    expected = {"grpc-status": "14", "grpc-message": "later", "grpc-retry-pushback-ms": "1500"}
    assert (reply.status, dict(reply.headers)) == (503, expected)


def test_every_code_is_one_of_grpcs() -> None:
    """Codes are 1 to 16."""
    assert {code for _, _, code in errors.CODES} <= set(range(1, 17))


@pytest.mark.parametrize(("path", "claimed"), [("/v2", 1), ("/v2/x", 1), ("/v20", 0), ("/v1/models", 0)])
def test_claims(path: str, claimed: int) -> None:
    """Whatever lies below /v2 is answered in this protocol."""
    assert ADAPTER.claims(Call("GET", path)) == claimed


# Descriptions...


def test_version_is_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server tells the program's version, or that it does not know."""
    describe.own_version.cache_clear()
    monkeypatch.setattr(describe, "version", lambda name: f"{name}-9")
    assert describe.server()["version"] == "tensorgate-9"

    def missing(name: str) -> str:
        raise installed.PackageNotFoundError(name)

    describe.own_version.cache_clear()
    monkeypatch.setattr(describe, "version", missing)
    assert describe.server()["version"] == "unknown"
    describe.own_version.cache_clear()


def test_user_class_describes_itself() -> None:
    """What a class says of its tensors in this protocol's terms is told; what it says in others' is not."""
    good = {"name": "input", "datatype": "FP32", "shape": [-1, 4], "more": 1}
    said = {"inputs": [good, {"messagetype": "tensor"}, 5, {**good, "shape": ["a"]}], "outputs": "none"}
    told = describe.model(model({"init_metadata": said}, x="any"))
    assert told["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
    assert told["outputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1]}]
    assert told["versions"] == ["3"]


def test_dtypes_without_a_datatype() -> None:
    """float8 is told as FP32, and what the protocol does not know by its own name."""
    told = describe.model(model(a="float8e5m2", b="complex64"))
    assert [one["datatype"] for one in told["inputs"]] == ["FP32", "COMPLEX64"]


STATUS = ModelStatus(
    "m",
    (VersionStatus(3, "LOADING"), VersionStatus(2, "AVAILABLE"), VersionStatus(1, "END", "it does not load")),
    {"good": 2, "next": 3},
)


@pytest.mark.parametrize(
    ("target", "ready"),
    [
        (Target("m"), True),
        (Target("m", version=2), True),
        (Target("m", version=3), False),
        (Target("m", label="good"), True),
        (Target("m", label="next"), False),
        (Target("m", label="gone"), False),
    ],
)
def test_ready(target: Target, ready: bool) -> None:
    """Ready is what answers."""
    assert describe.is_ready(STATUS, target) == ready


def test_index_states() -> None:
    """Every state has its name in Triton's index, and a failure its reason."""
    rows = list(describe.index([STATUS], ready_only=False))
    assert [(row["version"], row["state"], row["reason"]) for row in rows] == [
        ("3", "LOADING", ""),
        ("2", "READY", ""),
        ("1", "UNAVAILABLE", "it does not load"),
    ]
    assert [row["version"] for row in describe.index([STATUS], ready_only=True)] == ["2"]


# What models give...


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"x": np.zeros(1, np.complex64)}, "complex64, for which the protocol has no datatype"),
        ({"y": np.zeros(1)}, 'gave no output "x"'),
        ({"x": np.array([5], object)}, "holds int, which is no string"),
    ],
)
def test_outputs_that_cannot_be_given(outputs: dict[str, np.ndarray], text: str) -> None:
    """A model that answers what the protocol cannot carry has failed."""
    wish = ONE | {"outputs": [{"name": "x", "parameters": {"binary_data": True}}]}
    request = decoded("infer", wish, model(x="float32"))
    with pytest.raises(InferenceFailed, match=text):
        operation("infer").encode(InferenceResponse(outputs), request, POST)


@pytest.mark.parametrize(
    ("form", "text"),
    [("token", "[NaN,Infinity]"), ("null", "[null,null]"), ("string", '["NaN","Infinity"]')],
)
def test_not_finite_as_configured(form: Any, text: str) -> None:
    """NaN and infinities are written as the configuration says."""
    request = decoded("infer", ONE, model(x="float32"))
    response = InferenceResponse({"x": np.array([np.nan, np.inf], np.float32)})
    reply = operation("infer", Config(non_finite=form)).encode(response, request, POST)
    assert f'"data":{text}' in reply.body.decode()  # type: ignore[union-attr]


def test_class_gives_a_text_alone() -> None:
    """What a user's class gives as one text, or bytes, is a vector of one; a declared scalar stays one."""
    text = np.array("hi", object)
    for dtype, shape in (("any", [1]), ("string", [])):
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}
        request = decoded("infer", body, model(x=dtype))
        reply = operation("infer").encode(InferenceResponse({"x": text}), request, POST)
        assert json.loads(reply.body)["outputs"][0]["shape"] == shape  # type: ignore[arg-type]


def test_bytes_for_whoever_takes_anything() -> None:
    """Bytes that are all UTF-8 are text to a user's class, others stay bytes."""
    item = {"name": "x", "shape": [1], "datatype": "BYTES", "parameters": {"content_type": "base64"}}
    for data, value in (("aGk=", "hi"), ("/w==", b"\xff")):
        request = decoded("infer", {"inputs": [item | {"data": [data]}]}, model(x="any"))
        assert request.inputs["x"].tolist() == [value]


def test_picture_is_base64() -> None:
    """A string for a model that takes pictures is base64, also where it does not say so."""
    specs = {"x": TensorSpec("x", "float32", (None, 2, 2), "image")}
    pictures = ModelMetadata("m", 1, "", {"serving_default": Signature("serving_default", "predict", specs, {})})
    item = {"name": "x", "shape": [1], "datatype": "BYTES", "data": ["iVA="]}
    assert decoded("infer", {"inputs": [item]}, pictures).inputs["x"].tolist() == [b"\x89P"]
    with pytest.raises(InvalidTensor, match="not base64"):
        decoded("infer", {"inputs": [item | {"data": ["?"]}]}, pictures)


def test_duplicate_keys() -> None:
    """Of equal keys the last counts, whichever way the body is read."""
    body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1], "data": [2]}], "inputs": []}'
    with pytest.raises(InvalidTensor, match="must be a list of tensors"):
        decoded("infer", body, model(x="float32"))
    request = decoded("infer", body.replace(b', "inputs": []', b""), model(x="float32"))
    assert request.inputs["x"].tolist() == [2]


def test_no_inputs() -> None:
    """A model without inputs is called without any."""
    assert decoded("infer", {}, model()).inputs == {}


def test_raw_only_for_numbers() -> None:
    """A body without JSON fits a model whose shape is unknown only by one free dimension."""
    call = Call("POST", "", headers=[(b"inference-header-content-length", b"0")], body=b"abcd")
    with pytest.raises(InvalidTensor, match="does not follow"):
        operation("infer").decode(call, Target("m"), model(x="float32"))
    image = Signature("serving_default", "predict", {"x": TensorSpec("x", "float32", (None, 2, 2), "image")}, {})
    request = operation("infer").decode(call, Target("m"), ModelMetadata("m", 1, "", {"serving_default": image}))
    assert isinstance(request, InferenceRequest)
    assert request.inputs["x"].tolist() == [b"abcd"]


def test_bfloat16_is_rounded() -> None:
    """A float32 becomes the nearest bfloat16, ties to even, and a NaN stays one."""
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-7, 3.4e38, np.nan], np.float32)
    values.view(np.uint32)[-1] = 0x7F800001  # a NaN whose upper half alone would be an infinity
    back = raw.read(raw.write(values, "BF16"), "BF16", (5,), 5)
    assert back[:4].tolist() == [1.0, 1 + 2**-6, 1 + 2**-7, float("inf")]
    assert np.isnan(back[4])


def test_grpc_writes_raw_where_it_must() -> None:
    """A typed request is answered raw if one of the outputs has no typed field."""
    rpc = next(route for route in ADAPTER.routes() if isinstance(route, Infer) and route.method == "GRPC")
    item = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1]}}
    message = ModelInferRequest(model_name="m", inputs=[item])
    call = Call("GRPC", rpc.path, body=message.SerializeToString())
    request = rpc.decode(call, Target("m"), model(x="float32"))
    assert isinstance(request, InferenceRequest)
    reply = rpc.encode(InferenceResponse({"x": np.array([1], np.float16)}), request, call)
    assert list(ModelInferResponse.FromString(reply.body).raw_output_contents) == [b"\x00\x3c"]


# Generate...


async def _parts(*outputs: Any, error: Exception | None = None) -> AsyncIterator[InferenceResponse]:
    for one in outputs:
        yield InferenceResponse({"x": np.array([one], object)})
    if error is not None:
        raise error


def _events(*outputs: Any, error: Exception | None = None) -> list[Any]:
    """The events of a stream, an exception that comes out of it as the last."""
    request = decoded("generate_stream", {"text_input": "a"}, model(x="string"))
    stream = operation("generate_stream").stream
    assert stream is not None
    assert request.stream
    reply: Reply = stream(_parts(*outputs, error=error), request, POST)

    async def gather() -> list[Any]:
        found: list[Any] = []
        try:
            async for chunk in reply.body:  # type: ignore[union-attr]
                found += [json.loads(chunk.decode().removeprefix("data: "))]
        except RuntimeError as error:
            found.append(error)
        return found

    return asyncio.run(gather())


def test_stream() -> None:
    """Each part is an event."""
    head = {"model_name": "m", "model_version": "3"}
    assert _events("a", "b") == [head | {"text_output": "a"}, head | {"text_output": "b"}]


def test_stream_breaks() -> None:
    """An error behind the first part is told as the last event; what is a bug is also raised, for the log."""
    told = _events("a", error=InferenceFailed("it broke"))
    assert told[1:] == [{"error": "it broke"}]
    bug = RuntimeError("secret")
    assert _events("a", error=bug)[1:] == [{"error": "internal error"}, bug]


def test_stream_of_what_is_no_text() -> None:
    """Bytes that are not UTF-8 cannot be an event's text."""
    assert _events(b"\xff") == [{"error": "output 'x' is not text"}]


def test_generate_several_outputs() -> None:
    """With several texts, each output keeps its name."""
    request = decoded("generate", {"a": "1", "b": "2", "id": "7"}, model(a="string", b="string"))
    outputs = {"a": np.array(["1"], object), "b": np.array(["2", "3"], object)}
    reply = operation("generate").encode(InferenceResponse(outputs), request, POST)
    expected = {"model_name": "m", "model_version": "3", "id": "7", "a": "1", "b": ["2", "3"]}
    assert json.loads(reply.body) == expected  # type: ignore[arg-type]


def test_generate_parameters() -> None:
    """Keys that name no input, and `parameters`, reach the model; a user's class gets none of them."""
    body = {"text_input": "a", "max_tokens": 5, "parameters": {"seed": 1}}
    assert decoded("generate", body, model(x="string")).parameters == {"max_tokens": 5, "seed": 1}
    assert decoded("generate", body, model({"has": ["predict"]}, x="string")).parameters == {}


@pytest.mark.parametrize(
    ("value", "dtype"), [([1, 2], "int64"), (1.5, "float64"), ([1, 2.5], "float64"), (True, "bool"), ("a", "object")]
)
def test_generate_for_whoever_takes_anything(value: Any, dtype: str) -> None:
    """The values themselves say what they are."""
    assert decoded("generate", {"x": value}, model(x="any")).inputs["x"].dtype == dtype
