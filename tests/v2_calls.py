"""Calls of v2, without a gateway."""

import json
from typing import Any

from adapters.v2 import Config, create
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import (
    Call,
    InferenceRequest,
    ModelMetadata,
    Signature,
    Target,
    TensorSpec,
)

ADAPTER = create(Config(), DecodeLimits())
POST, RPC = Call("POST", "/v2/models/m/infer"), Call("GRPC", "/inference.GRPCInferenceService/ModelInfer")


def operation(verb: str, config: Config = Config()) -> Infer:  # noqa: B008 - it is frozen
    """The operation of that name."""
    routes = create(config, DecodeLimits()).routes()
    return next(route for route in routes if isinstance(route, Infer) and route.path.endswith(f"]/{verb}"))


def model(extras: Any = None, **inputs: str) -> ModelMetadata:
    """A model of those dtypes, whose outputs are called the same."""
    specs = {name: TensorSpec(name, dtype, None) for name, dtype in inputs.items()}
    signature = Signature("serving_default", "predict", specs, specs)
    return ModelMetadata("m", 3, "none", {"serving_default": signature}, extras=extras or {})


def decoded(verb: str, body: Any, to: ModelMetadata) -> InferenceRequest:
    """What a body is read as."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = operation(verb).decode(Call("POST", "", body=text), Target("m"), to)
    assert isinstance(request, InferenceRequest)
    return request


ONE = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}
