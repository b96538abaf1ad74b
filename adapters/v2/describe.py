"""What the server and its models say of themselves.

Source: Open Inference Protocol, "Server Metadata" and "Model Metadata"; Triton,
docs/protocol/extension_model_repository.md.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from adapters.v2.datatypes import declared
from adapters.v2.tensors import signature_of
from gateway.types import ModelMetadata, ModelStatus, Target, TensorSpec

NAME = "tensorgate"
EXTENSIONS = ("binary_tensor_data", "generate", "model_repository")

_STATES = {"START": "LOADING", "LOADING": "LOADING", "AVAILABLE": "READY", "UNLOADING": "UNLOADING"}


@cache
def own_version() -> str:
    """The version of this program, if it is installed."""
    try:
        return version(NAME)
    except PackageNotFoundError:
        return "unknown"


def server() -> dict[str, Any]:
    """The server's metadata."""
    return {"name": NAME, "version": own_version(), "extensions": list(EXTENSIONS)}


def model(metadata: ModelMetadata) -> dict[str, Any]:
    """A model's metadata: of its default signature."""
    signature = signature_of(metadata, {})
    versions = metadata.versions or (metadata.version,)
    return {
        "name": metadata.name,
        "versions": [str(number) for number in versions],
        "platform": metadata.platform,
        "inputs": _own(metadata, "inputs") or [_tensor(name, spec) for name, spec in signature.inputs.items()],
        "outputs": _own(metadata, "outputs") or [_tensor(name, spec) for name, spec in signature.outputs.items()],
    }


def _tensor(name: str, spec: TensorSpec) -> dict[str, Any]:
    sizes = (None,) if spec.shape is None else spec.shape
    return {"name": name, "datatype": declared(spec), "shape": [-1 if size is None else size for size in sizes]}


def _own(metadata: ModelMetadata, side: str) -> list[dict[str, Any]]:
    """What a user's class says of its tensors in this protocol's terms, if it does."""
    said = metadata.extras.get("init_metadata")
    tensors = said.get(side) if isinstance(said, dict) else None
    return [
        {"name": one["name"], "datatype": one["datatype"], "shape": list(one["shape"])}
        for one in (tensors if isinstance(tensors, list) else ())
        if isinstance(one, dict) and _is_tensor(one)
    ]


def _is_tensor(one: dict[str, Any]) -> bool:
    shape = one.get("shape")
    return (
        isinstance(one.get("name"), str)
        and isinstance(one.get("datatype"), str)
        and isinstance(shape, list)
        and all(type(size) is int for size in shape)
    )


def is_ready(status: ModelStatus | None, target: Target) -> bool:
    """Whether the version that the target names takes requests; without one, whether any does."""
    if status is None:
        return False
    wanted = status.labels.get(target.label) if target.label is not None else target.version
    if wanted is None and target.label is not None:
        return False
    ready = (one.version for one in status.versions if one.state == "AVAILABLE" and one.version not in status.unready)
    return any(wanted in (None, version) for version in ready)


def index(models: Sequence[ModelStatus], ready_only: bool) -> Iterator[dict[str, str]]:
    """Every version of every model, with its state."""
    for one in models:
        for told in one.versions:
            state = _STATES.get(told.state, "UNAVAILABLE")
            if state == "READY" or not ready_only:
                yield {"name": one.name, "version": str(told.version), "state": state, "reason": told.error}
