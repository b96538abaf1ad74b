"""What SageMaker's decoder makes of a body, in a word: for tests of its formats."""

import json
from typing import Any

import pytest

from adapters.sagemaker.requests import Decoded, decode
from gateway.errors import GatewayError
from gateway.interfaces import DecodeLimits
from gateway.types import ModelMetadata, ResponseForm, Signature, TensorSpec

LIMITS = DecodeLimits(elements=10_000)
JSON = "application/json"
FOUR = TensorSpec("x", "float32", (None, 4))
ROW = [1.5, 16.0, 14.0, 23.0]
OTHER = [-2.0, 100.25, 15.5, 9.0]


def model(*inputs: TensorSpec, form: str = "predictions", name: str = "serving_default") -> ModelMetadata:
    """A model with one signature."""
    signature = Signature(name, "predict", {spec.name: spec for spec in inputs}, {})
    return ModelMetadata("m", 1, "none", {name: signature}, ResponseForm(form))


def read(body: bytes | str, content_type: str = JSON, *inputs: TensorSpec, form: str = "predictions") -> Decoded:
    """What a body holds for a model with those inputs; FOUR if none is named."""
    data = body.encode() if isinstance(body, str) else body
    return decode(data, content_type, model(*(inputs or (FOUR,)), form=form), LIMITS, "auto")


def values(body: Any, content_type: str = JSON, *inputs: TensorSpec) -> Any:
    """The only tensor, as lists; a body that is no text is written as JSON."""
    decoded = read(body if isinstance(body, str | bytes) else json.dumps(body), content_type, *inputs)
    [tensor] = decoded.inputs.values()
    return tensor.tolist()


def refusal(body: Any, content_type: str = JSON, *inputs: TensorSpec) -> tuple[type[GatewayError], str]:
    """The error that the body is answered with."""
    with pytest.raises(GatewayError) as caught:
        values(body, content_type, *inputs)
    return caught.type, str(caught.value)
