"""Whatever bytes a client sends, TF Serving's dialect has a request or a refusal for them, never another exception."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from properties.strategies import bodies

from adapters.tfserving import Config, create
from gateway.errors import RequestError
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import Call, ModelMetadata, Signature, Target, TensorSpec

ADAPTER = create(Config(), DecodeLimits(elements=1000))
OPERATIONS = {route.path.rpartition(":")[2]: route for route in ADAPTER.routes() if isinstance(route, Infer)}

X = TensorSpec("x", "float32", (None, 2))
N = TensorSpec("n", "uint8", None)
S = TensorSpec("s", "string", (None,))
IMAGE = TensorSpec("image", "float32", (None, 28, 28), media="image")
SCORES = {"scores": TensorSpec("scores", "float32", (None, 2))}


def _model(*inputs: TensorSpec) -> ModelMetadata:
    signature = Signature("serving_default", "predict", {spec.name: spec for spec in inputs}, SCORES)
    return ModelMetadata("m", 1, "none", {"serving_default": signature})


MODELS = [_model(X), _model(N), _model(S), _model(IMAGE), _model(X, S)]


@pytest.mark.parametrize("verb", OPERATIONS)
@settings(max_examples=300, deadline=None)
@given(body=bodies)
def test_any_bytes_are_a_request_or_a_refusal(verb: str, body: bytes) -> None:
    """A body decodes to tensors of the declared dtypes, or is refused with a 4xx whose body is JSON."""
    operation = OPERATIONS[verb]
    call = Call("POST", f"/v1/models/m:{verb}", body=body)
    for model in MODELS:
        try:
            request = operation.decode(call, Target("m"), model)
        except RequestError as error:
            reply = ADAPTER.encode_error(error, call)
            assert 400 <= reply.status < 500
            assert json.loads(reply.body).keys() == {"error"}
        else:
            specs = model.signatures["serving_default"].inputs
            assert request.inputs.keys() == specs.keys()
            for name, tensor in request.inputs.items():
                assert tensor.dtype in (specs[name].numpy_dtype, object)
                assert tensor.flags.c_contiguous


@pytest.mark.parametrize("verb", OPERATIONS)
@settings(max_examples=100, deadline=None)
@given(body=bodies)
def test_any_bytes_to_an_unknown_model(verb: str, body: bytes) -> None:
    """The check of a body whose model is unknown raises nothing but a refusal."""
    check = OPERATIONS[verb].check_body
    assert check is not None
    with contextlib.suppress(RequestError):
        check(Call("POST", f"/v1/models/ghost:{verb}", body=body))
