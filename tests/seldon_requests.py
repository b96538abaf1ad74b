"""Seldon's calls, decoded for a user's class or for a model that declares its inputs."""

from typing import Any

from adapters.seldon import Config, create
from gateway.interfaces import DecodeLimits, Infer
from gateway.paths import PathTable
from gateway.types import Call, InferenceRequest, ModelMetadata, Reply, Signature, Target, TensorSpec

ANY = TensorSpec("X", "any", None)
METHODS = ("serving_default", "transform_input", "transform_output", "route", "aggregate", "send_feedback")


def user_class(*has: str, **extras: Any) -> ModelMetadata:
    """A user's class with those methods."""
    signatures = {name: Signature(name, "predict", {"X": ANY}, {"Y": ANY}) for name in METHODS}
    return ModelMetadata("m", 1, "python_class", signatures, extras={"has": list(has), **extras})


def graph(**inputs: TensorSpec) -> ModelMetadata:
    """A model that declares those inputs."""
    signature = Signature("serving_default", "predict", inputs, {"y": TensorSpec("y", "float32", None)})
    return ModelMetadata("m", 1, "onnx", {"serving_default": signature})


def spec(dtype: str, *shape: int | None, media: str = "") -> TensorSpec:
    """An input of that shape."""
    return TensorSpec("", dtype, shape, media)


def decoded(
    body: bytes | str,
    model: ModelMetadata,
    path: str = "/predict",
    headers: dict[str, str] | None = None,
    config: Config | None = None,
    limits: DecodeLimits | None = None,
) -> InferenceRequest | Reply:
    """What the call asks of the model."""
    adapter = create(config or Config(), limits or DecodeLimits())
    data = body if isinstance(body, bytes) else body.encode()
    bare, _, query = path.partition("?")
    sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    call = Call("POST", bare, query=query, headers=sent, body=data, id="r-1")
    operation = PathTable({"seldon": adapter}).find(call).operation
    assert isinstance(operation, Infer)
    return operation.decode(call, Target(), model)


def request(body: bytes | str, model: ModelMetadata, *args: Any, **more: Any) -> InferenceRequest:
    """The same, where a model must run."""
    found = decoded(body, model, *args, **more)
    assert isinstance(found, InferenceRequest)
    return found


def x(body: bytes | str, **more: Any) -> Any:
    """What a class gets of the body: the value of its input, or of `json`."""
    found = request(body, user_class("predict"), **more)
    return found.inputs["X"].tolist() if found.inputs else found.parameters["json"]
