"""Whatever bytes a client sends, v2 has a request or a refusal for them; and both ways in agree on what they read."""

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.strategies import DTYPES, json_values, nested_numbers, tensors

from adapters._inference_pb2 import ModelInferRequest, ModelInferResponse
from adapters.v2 import Config, create, raw, requests
from adapters.v2.datatypes import DTYPES as CARRIERS
from adapters.v2.datatypes import declared
from gateway.errors import RequestError
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import (
    Call,
    InferenceResponse,
    ModelMetadata,
    Reply,
    Signature,
    Target,
    Tensor,
    TensorSpec,
)

LIMITS = DecodeLimits(elements=1000)
ADAPTER = create(Config(), LIMITS)
OPERATIONS = {f"{route.method} {route.path}": route for route in ADAPTER.routes() if isinstance(route, Infer)}
REST = OPERATIONS["POST /v2/models/{model}[/versions/{version}]/infer"]
GRPC = OPERATIONS["GRPC /inference.GRPCInferenceService/ModelInfer"]


def model(*inputs: TensorSpec) -> ModelMetadata:
    """A model that gives its inputs back."""
    specs = {spec.name: spec for spec in inputs}
    return ModelMetadata("m", 1, "none", {"serving_default": Signature("serving_default", "predict", specs, specs)})


MODELS = [
    model(TensorSpec("x", "float32", (None, 2))),
    model(TensorSpec("x", "string", None)),
    model(TensorSpec("x", "any", None)),
    model(TensorSpec("x", "bfloat16", (None,)), TensorSpec("n", "uint8", None)),
    model(TensorSpec("image", "float32", (None, 4, 4), media="image")),
]

_PARTS = (
    '{"inputs":[', '{"name":"x",', '"shape":[1],', '"shape":[2,2],', '"shape":[0],', '"datatype":"FP32",',
    '"datatype":"BYTES",', '"datatype":"INT8",', '"data":[', '"data":[1,2]}', '"parameters":{"binary_data_size":4}',
    '"outputs":[{"name":"x"}]', '"id":"7"', '{"text_input":"a"', '"parameters":{"content_type":"base64"}', "[", "]",
    "{", "}", ",", ":", '"', '"x"', "\\u", "\\ud83d", "1", "-", "1.5", "e5", "1e400", "NaN", "Infinity", "null",
    "true", "18446744073709551616", " ", "\n", "\0", "é", "\ufeff", "9" * 400, "[" * 300, "]" * 300,
)  # fmt: skip

_inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "n", "image", "y"]) | json_values(),
        "shape": st.lists(st.integers(-1, 4), max_size=3) | json_values() | st.just([2**31, 2**31]),
        "datatype": st.sampled_from([*CARRIERS, "FP8"]) | json_values(),
        "data": nested_numbers | json_values(),
        "parameters": st.dictionaries(
            st.sampled_from(["binary_data_size", "content_type"]), st.integers(-1, 9) | st.just("base64")
        )
        | json_values(),
    },
)
_documents = st.fixed_dictionaries(
    {"inputs": st.lists(_inputs | json_values(), max_size=3)},
    optional={"id": json_values(), "parameters": json_values(), "outputs": json_values()},
)
bodies = (
    st.binary(max_size=64)
    | st.lists(st.sampled_from(_PARTS), max_size=24).map(lambda parts: "".join(parts).encode())
    | _documents.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
)


def _check(operation: Infer, call: Call) -> None:
    for one in MODELS:
        try:
            request = operation.decode(call, Target("m"), one)
        except RequestError as error:
            status = ADAPTER.encode_error(error, call).status
            assert 400 <= status < 500
        else:
            assert not isinstance(request, Reply)
            signature = one.signatures["serving_default"]
            assert request.inputs.keys() <= signature.inputs.keys()
            for name, tensor in request.inputs.items():
                spec = signature.inputs[name]
                assert tensor.dtype in (spec.numpy_dtype, object) or spec.dtype == "any"
                assert tensor.dtype.isnative


@pytest.mark.parametrize("operation", [key for key in OPERATIONS if key.startswith("POST")])
@settings(max_examples=200, deadline=None)
@given(body=bodies, length=st.none() | st.integers(-1, 70).map(str) | st.text(max_size=3))
def test_any_bytes(operation: str, body: bytes, length: str | None) -> None:
    """A body becomes tensors of the declared dtypes, or is refused with a 4xx."""
    headers = [] if length is None else [(b"inference-header-content-length", length.encode("latin-1", "replace"))]
    _check(OPERATIONS[operation], Call("POST", "/v2/models/m/infer", headers=headers, body=body))


_messages = st.builds(
    lambda inputs, more: ModelInferRequest(model_name="m", inputs=inputs, raw_input_contents=more).SerializeToString(),
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.sampled_from(["x", "n", "image"]),
                "datatype": st.sampled_from([*CARRIERS, ""]),
                "shape": st.lists(st.integers(-1, 3), max_size=3),
            },
            optional={
                "contents": st.fixed_dictionaries(
                    {},
                    optional={
                        "int_contents": st.lists(st.integers(-300, 300), max_size=4),
                        "uint_contents": st.lists(st.integers(0, 300), max_size=4),
                        "fp32_contents": st.lists(st.floats(width=32), max_size=4),
                        "bytes_contents": st.lists(st.binary(max_size=3), max_size=4),
                    },
                )
            },
        ),
        max_size=2,
    ),
    st.lists(st.binary(max_size=12), max_size=2),
)


@settings(max_examples=400, deadline=None)
@given(body=st.binary(max_size=48) | _messages)
def test_any_message(body: bytes) -> None:
    """A gRPC message becomes tensors of the declared dtypes, or is refused."""
    call = Call("GRPC", GRPC.path, body=body)
    with contextlib.suppress(RequestError):
        GRPC.target(call)
        _check(GRPC, call)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_way_reads_the_same(dtype: str, data: st.DataObject) -> None:
    """A tensor sent as JSON flat or nested, as bytes, raw or typed over gRPC is the same tensor, and comes back."""
    tensor = data.draw(tensors(dtype))
    spec = TensorSpec("x", dtype, None)
    datatype = declared(spec)
    item = {"name": "x", "datatype": datatype, "shape": list(tensor.shape)}
    content = raw.write(tensor, datatype)
    flat = json.dumps({"inputs": [item | {"data": tensor.ravel().tolist()}]}).encode()
    nested = json.dumps({"inputs": [item | {"data": tensor.tolist()}]}).encode()
    announced = item | {"parameters": {"binary_data_size": len(content)}}
    head = json.dumps({"inputs": [announced], "parameters": {"binary_data_output": True}}).encode()
    message = ModelInferRequest(model_name="m", inputs=[item], raw_input_contents=[content]).SerializeToString()
    length = [(b"inference-header-content-length", str(len(head)).encode())]
    ways = [
        (REST, Call("POST", "", body=flat)),
        (REST, Call("POST", "", headers=length, body=head + content)),
        (GRPC, Call("GRPC", "", body=message)),
    ]
    if 0 not in tensor.shape:
        ways.append((REST, Call("POST", "", body=nested)))
    for operation, call in ways:
        request = operation.decode(call, Target("m"), model(spec))
        assert not isinstance(request, Reply)
        _same(request.inputs["x"], tensor)
        reply = operation.encode(InferenceResponse({"x": tensor}), request, call)
        assert isinstance(reply.body, bytes)
        _same(_answered(reply, call), tensor)


def _answered(reply: Reply, call: Call) -> Tensor:
    """The output, read by other means than those that wrote it."""
    assert isinstance(reply.body, bytes)
    if call.method == "GRPC":
        answer = ModelInferResponse.FromString(reply.body)
        return _read(answer.raw_output_contents[0], answer.outputs[0].datatype, tuple(answer.outputs[0].shape))
    length = int(dict(reply.headers).get("Inference-Header-Content-Length", len(reply.body)))
    (output,) = json.loads(reply.body[:length])["outputs"]
    if "data" not in output:
        return _read(reply.body[length:], output["datatype"], tuple(output["shape"]))
    dtype = CARRIERS[output["datatype"]]
    wide: Any = np.float64 if dtype.kind == "f" else dtype
    return np.array(output["data"], wide).astype(dtype).reshape(output["shape"])


def _read(content: bytes, datatype: str, shape: tuple[int, ...]) -> Tensor:
    return raw.read(content, datatype, shape, int(np.prod(shape)))


def _same(found: Tensor, tensor: Tensor) -> None:
    assert found.shape == tensor.shape
    if tensor.dtype == object:
        texts = [item.decode() if isinstance(item, bytes) else item for item in found.ravel().tolist()]
        assert texts == tensor.ravel().tolist()
    else:
        assert found.dtype == tensor.dtype
        np.testing.assert_array_equal(found, tensor)
        assert (np.signbit(found) == np.signbit(tensor))[~np.isnan(tensor)].all() if tensor.dtype.kind == "f" else True


@settings(max_examples=200, deadline=None)
@given(value=nested_numbers, shape=st.lists(st.integers(0, 4), max_size=3))
def test_fast_and_exact_agree(value: Any, shape: list[int]) -> None:
    """simdjson's way gives what the exact one gives, or leaves the verdict to it."""
    one = MODELS[0]
    text = json.dumps(
        {"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": value}], "id": "i" * 400}
    ).encode()
    document = json.loads(text)
    try:
        exact = requests.decode_document(document, memoryview(b""), Target("m"), one, LIMITS)
    except RequestError as error:
        with pytest.raises(type(error)):
            requests.decode_text(text, Target("m"), one, LIMITS)
    else:
        fast = requests.decode_text(text, Target("m"), one, LIMITS)
        _same(fast.inputs["x"], exact.inputs["x"])
        assert fast.wire == exact.wire
