"""What a request says beside its tensors: its id, its parameters, and which outputs it wants in which form."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from adapters._excerpt import excerpt
from adapters.v2.documents import is_unicode
from gateway.errors import InvalidTensor, MalformedBody
from gateway.types import ModelMetadata, Signature, Target, TensorSpec

Parameters = dict[str, Any]

BINARY = "binary_data"
BINARY_ALL = "binary_data_output"
BINARY_SIZE = "binary_data_size"

_REFUSED = {
    "classification": "classification is done by whoever reads the scores here",
    "shared_memory_region": "shared memory is not offered here",
}
"""Parameters that would change an answer's meaning if they were ignored."""


class Wish(Struct, frozen=True):
    """What the encoder must know of a request."""

    model: str
    version: str
    id: str | None
    outputs: dict[str, TensorSpec]
    """As the signature declares them."""
    wanted: dict[str, bool]
    """The outputs to give, in that order, and whether as binary; none means all, as `binary` says."""
    binary: bool
    """Over gRPC: as raw contents."""

    def is_binary(self, name: str) -> bool:
        """Whether that output is given as binary."""
        return self.wanted.get(name, self.binary)


def wish_of(
    document: Mapping[str, Any], signature: Signature, target: Target, metadata: ModelMetadata, binary: bool = False
) -> Wish:
    """The wish of a JSON object with `id`, `parameters` and `outputs`. Raises MalformedBody or InvalidTensor."""
    id = document.get("id")
    if id is not None and not (isinstance(id, str) and is_unicode([id])):
        raise MalformedBody(f"id must be a string, got {excerpt(id)}")
    binary = flag(parameters_of(document, "the request"), BINARY_ALL, binary)
    return Wish(
        model=target.model or metadata.name,
        version=str(metadata.version),
        id=id,
        outputs=signature.outputs,
        wanted=_wanted(document.get("outputs"), signature, binary),
        binary=binary,
    )


def _wanted(outputs: Any, signature: Signature, binary: bool) -> dict[str, bool]:
    wanted: dict[str, bool] = {}
    for output in () if outputs is None else _list(outputs, "outputs"):
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(name, str):
            raise MalformedBody('an entry of outputs must be an object with the key "name"')
        parameters = parameters_of(output, f"output {excerpt(name)}")
        check_output(name, parameters, signature)
        wanted[name] = flag(parameters, BINARY, binary)
    return wanted


def check_output(name: str, parameters: Parameters, signature: Signature) -> None:
    """Raise InvalidTensor for an output that the model does not give, or not in this form."""
    if name not in signature.outputs:
        known = ", ".join(f'"{label}"' for label in signature.outputs)
        raise InvalidTensor(f"there is no output {excerpt(name)}; the model gives {known}")
    refuse(parameters)


def refuse(parameters: Parameters) -> None:
    """Raise InvalidTensor for a parameter that is not served."""
    for key, why in _REFUSED.items():
        if parameters.get(key):
            raise InvalidTensor(f"the parameter {key} is not served: {why}")


def parameters_of(holder: Mapping[str, Any], where: str) -> Parameters:
    """The `parameters` of a JSON object."""
    parameters = holder.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise MalformedBody(f"the parameters of {where} must be an object")
    return parameters


def flag(parameters: Parameters, key: str, default: bool) -> bool:
    """A parameter that is true or false."""
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise MalformedBody(f"the parameter {key} must be true or false, got {excerpt(value)}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedBody(f"{where} must be a list")
    return value


def sent_on(parameters: Parameters, metadata: ModelMetadata) -> Parameters:
    """The parameters that the backend gets.

    A user's class gets none: what it hears by them (names, meta, the message) is the dialect of another protocol.
    """
    return {} if "has" in metadata.extras else parameters
