"""What Seldon tells a model's container by its environment, as the class's own `environment` has it.

Source: seldon-core, python/seldon_core/env_utils.py, utils.py and user_model.py (client_custom_metadata).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.seldon.errors import BadMetadata
from gateway.types import ModelMetadata

_UNIT = "PREDICTIVE_UNIT_ID"
_IMAGE = "PREDICTIVE_UNIT_IMAGE"
_NO_IMAGE = "NOT_IMPLEMENTED:NOT_IMPLEMENTED"
_DEFAULT_UNIT = "0"
_FALSE = ("false", "0", "no", "off", "f", "n")


def _variables(model: ModelMetadata) -> Mapping[str, str]:
    found: Mapping[str, str] = model.extras.get("environment", {})
    return found


def request_path(model: ModelMetadata) -> Mapping[str, str]:
    """The unit and its image, for meta.requestPath."""
    variables = _variables(model)
    unit = variables.get(_UNIT)
    return {unit: variables.get(_IMAGE) or _NO_IMAGE} if unit else {}


def unit_name(model: ModelMetadata) -> str:
    """What the model is called in meta.routing."""
    return _variables(model).get(_UNIT) or _DEFAULT_UNIT


def shows_metrics(model: ModelMetadata) -> bool:
    """Whether the model's own metrics are in its answers."""
    return _variables(model).get("INCLUDE_METRICS_IN_CLIENT_RESPONSE", "").strip().lower() not in _FALSE


def image_metadata(model: ModelMetadata) -> dict[str, Any]:
    """Name and versions as the image's name tells them."""
    image = _variables(model).get(_IMAGE, "")
    name, colon, version = image.rpartition(":")
    return {"name": name, "versions": [version]} if colon else {}


def metadata(model: ModelMetadata) -> dict[str, Any]:
    """The metadata that MODEL_METADATA holds, in JSON. Raises BadMetadata for what is none, such as other YAML."""
    text = _variables(model).get("MODEL_METADATA", "")
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        raise BadMetadata("Model metadata unavailable") from None
