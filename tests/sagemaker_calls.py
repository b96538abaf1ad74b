"""Calls of SageMaker's two faces as the pipeline would hand them over, and a model that gives back what it is sent."""

from typing import Any

from adapters.sagemaker import Config, create
from gateway.interfaces import DecodeLimits, Infer
from gateway.paths import PathTable
from gateway.types import Call, InferenceResponse, ModelMetadata, Reply, Signature, TensorSpec

ADAPTER = create(Config(multi_model_endpoints=("many",), default_accept="Text/CSV; x=y"), DecodeLimits())
TABLE = PathTable({"sagemaker": ADAPTER})
SPEC = TensorSpec("x", "float32", (None, 2))
MODEL = ModelMetadata("m", 1, "none", {"serving_default": Signature("serving_default", "predict", {"x": SPEC}, {})})


def call(method: str, path: str, body: bytes = b"", query: str = "", **headers: str) -> Call:
    """A call as the pipeline would hand it over; underscores in header names are dashes."""
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    route = TABLE.find(Call(method, path))
    return Call(method, path, route.params, query, pairs, body, "r-1")


def operation(made: Call) -> Any:
    """The operation that the call means."""
    return TABLE.find(made).operation


def answer(made: Call, **parameters: Any) -> tuple[Reply, Any]:
    """The reply of a model that gives back what it is sent, and the request that it saw."""
    found = operation(made)
    assert isinstance(found, Infer)
    request = found.decode(made, found.target(made), MODEL)
    return found.encode(InferenceResponse(dict(request.inputs), parameters), request, made), request


def headers_of(reply: Reply) -> dict[str, str]:
    """By name in lower case."""
    return {name.lower(): value for name, value in reply.headers}
