"""Refusals of what clients make large: they stay small."""

import pytest

from adapters.tfserving import Config, create
from gateway.errors import ModelNotFound, RequestError
from gateway.interfaces import DecodeLimits, Infer, Status
from gateway.types import Call, ModelMetadata, Signature, Target, TensorSpec

ADAPTER = create(Config(), DecodeLimits())
X = TensorSpec("x", "float32", (None, 2))
MODEL = ModelMetadata("m", 1, "none", {"serving_default": Signature("serving_default", "predict", {"x": X}, {"y": X})})

LONG = "n" * 100_000


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("predict", f'{{"signature_name": "{LONG}", "instances": [[1, 2]]}}'),
        ("predict", f'{{"instances": [{{"{LONG}": [1, 2]}}]}}'),
        ("classify", f'{{"signature_name": "{LONG}", "examples": [{{"x": 1}}]}}'),
        ("classify", f'{{"examples": [{{"{LONG}": null}}]}}'),
        ("classify", f'{{"examples": [{{"{LONG}": [1, "a"]}}]}}'),
        ("classify", f'{{"examples": [{{"{LONG}": [1, 18446744073709551615]}}]}}'),
        ("classify", f'{{"examples": [{{"{LONG}": {{"b64": "*"}}}}]}}'),
    ],
)
def test_an_error_repeats_only_the_beginning_of_a_long_name(verb: str, body: str) -> None:
    """A refusal stays small, whatever was sent."""
    operation = next(one for one in ADAPTER.routes() if isinstance(one, Infer) and one.path.endswith(verb))
    call = Call("POST", f"/v1/models/m:{verb}", body=body.encode())
    with pytest.raises(RequestError) as caught:
        operation.decode(call, Target("m"), MODEL)
    reply = ADAPTER.encode_error(caught.value, call)
    assert reply.status == 400
    assert b"n" * 256 in reply.body
    assert len(reply.body) < 1200


def test_an_unknown_models_long_name_is_cut_too() -> None:
    """A path may be 64 KB long."""
    status = next(one for one in ADAPTER.routes() if isinstance(one, Status))
    call = Call("GET", f"/v1/models/{LONG}")
    with pytest.raises(ModelNotFound) as caught:
        status.encode(None, call, Target(LONG))
    for error in (caught.value, ModelNotFound("there is no such service", LONG), ModelNotFound("no", LONG, 3)):
        body = ADAPTER.encode_error(error, call).body
        assert b"n" * 256 in body
        assert len(body) < 600
