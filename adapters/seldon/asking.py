"""What a message asks of a model that writes, draws or embeds: the parameters that lie beside its input.

NOTE: Seldon's messages have no member for them. `jsonData` may hold them as Hugging Face's containers take them, and
`meta.tags`, where whoever calls may put what they like, holds them for every other payload.
"""

from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from adapters._modelcard import CHAT
from adapters.seldon.describe import default_signature
from adapters.seldon.messages import Payload
from gateway.errors import InvalidTensor
from gateway.types import ModelMetadata, Signature

_PARAMETERS = "parameters"
_INPUTS = "inputs"


class Asked(Struct, frozen=True):
    """The payload without its parameters."""

    signature: Signature
    payload: Payload
    parameters: dict[str, Any] = {}


def asked(payload: Payload, model: ModelMetadata) -> Asked:
    """Apart what belongs apart; other models' payloads are left as they are. Raises InvalidTensor."""
    signature = default_signature(model)
    if not (model.extras.get("task") or model.extras.get("tasks")):
        return Asked(signature, payload)
    parameters = _object(((payload.meta or {}).get("tags") or {}).get(_PARAMETERS), f"meta.tags.{_PARAMETERS}")
    if payload.form != "jsonData" or not isinstance(payload.value, dict):
        return Asked(signature, payload, parameters)
    values = dict(payload.value)
    parameters = parameters | _object(values.pop(_PARAMETERS, None), f"jsonData.{_PARAMETERS}")
    if "messages" in values and CHAT in model.signatures:
        signature = model.signatures[CHAT]
        values["messages"] = _conversation(values["messages"])
    if _INPUTS in values and _INPUTS not in signature.inputs and len(signature.inputs) == 1:
        [name] = signature.inputs
        values.setdefault(name, values.pop(_INPUTS))
    return Asked(signature, replace(payload, value=values), parameters)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise InvalidTensor(f"{where}: expected an object")
    return dict(value or {})


def _conversation(messages: Any) -> Any:
    """A conversation as JSON text, which is what such a model takes."""
    if isinstance(messages, list) and messages and isinstance(messages[0], dict):
        return [orjson.dumps(messages).decode()]
    return messages
