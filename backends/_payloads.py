"""Values between tensors and what a user's class takes and returns.

Source: seldon-core, python/seldon_core/utils.py and metrics.py.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

import numpy as np

MIRRORED_TEXT_BYTES = 16 << 20
"""Text becomes numpy's fixed-width kind, as Seldon makes it, unless that would take more than this."""

BAD_DATA = "MICROSERVICE_BAD_DATA"
METRIC_KINDS = ("COUNTER", "GAUGE", "TIMER")


class Refused(Exception):
    """An answer that is an error, with Seldon's status and reason."""

    def __init__(self, message: str, status: int = 400, reason: str = BAD_DATA, body: Any = None) -> None:
        super().__init__(message)
        self.message, self.status, self.reason, self.body = message, status, reason, body


class Answer(NamedTuple):
    """What one call, or one part of it, gives."""

    outputs: dict[str, np.ndarray]
    parameters: dict[str, Any]


# In...


def natural(tensor: np.ndarray) -> Any:
    """A tensor as Seldon hands it over: text and bytes bare, arrays of text in numpy's own kind."""
    if tensor.dtype != object:
        return tensor
    if not tensor.ndim and isinstance(tensor.item(), (str, bytes)):
        return tensor.item()
    items = tensor.ravel().tolist()
    text = bool(items) and all(type(item) is str for item in items)
    if text and 4 * len(items) * max(map(len, items)) <= MIRRORED_TEXT_BYTES:
        return tensor.astype(str)
    return tensor


def payload(inputs: dict[str, np.ndarray], parameters: dict[str, Any]) -> Any:
    """What the class gets as X."""
    if "json" in parameters:
        return parameters["json"]
    return natural(inputs["X"]) if "X" in inputs else np.array([])


def message_of(inputs: dict[str, np.ndarray], parameters: dict[str, Any]) -> dict[str, Any]:
    """A SeldonMessage for predict_raw, where the caller speaks another protocol."""
    x = payload(inputs, parameters)
    if "json" in parameters:
        return {"jsonData": x}
    if isinstance(x, str):
        return {"strData": x}
    if isinstance(x, bytes):
        return {"binData": base64.b64encode(x).decode("ascii")}
    return {"data": {"names": parameters.get("names") or [], "ndarray": x.tolist()}}


# Out...


def raw_answer(value: Any) -> Answer:
    """What predict_raw returned, to be sent as it is."""
    told: dict[str, Any] = {"json": value, "raw": True}
    if isinstance(value, dict):
        meta = value.get("meta")
        metrics = meta.get("metrics") if isinstance(meta, dict) else None
        if metrics:
            check_metrics(metrics)
            told["metrics"] = metrics
    return Answer({}, told)


def unpacked(value: Any) -> Any:
    """What a SeldonMessage carries, for a caller who speaks another protocol."""
    if not isinstance(value, dict):
        return value
    data = value.get("data")
    if isinstance(data, dict) and isinstance(data.get("tensor"), dict):
        return np.array(data["tensor"]["values"]).reshape(data["tensor"]["shape"])
    if isinstance(data, dict) and "ndarray" in data:
        return data["ndarray"]
    return value.get("strData", value.get("jsonData", value))


def array_of(value: Any) -> np.ndarray:
    """Raises Refused for what is no payload, in Seldon's words."""
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if isinstance(value, (str, bytes)):
        tensor = np.empty((), object)
        tensor[()] = value if isinstance(value, bytes) else str(value)
        return tensor
    if isinstance(value, (list, tuple)):
        return _listed(list(value))
    if isinstance(value, (int, float, np.generic)) or hasattr(value, "__array__"):
        return np.asarray(value)
    raise Refused(f"Unknown data type returned as payload (must be list or np array):{value}")


def _listed(value: list[Any]) -> np.ndarray:
    """A list as an array; the items of one that holds no numbers stay what they are."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty(len(value), object)
        for place, item in enumerate(value):
            array[place] = item
        return array
    kept = np.array(value, dtype=object) if array.dtype.kind in "US" else array
    return kept if kept.shape == array.shape else array


def check_metrics(metrics: Any) -> None:
    """Raise Refused if Seldon would not count them."""
    good = isinstance(metrics, list) and all(
        isinstance(one, dict)
        and one.get("type") in METRIC_KINDS
        and isinstance(one.get("key"), str)
        and isinstance(one.get("value"), (int, float, np.number))
        and isinstance(one.get("tags", {}), dict)
        for one in metrics
    )
    if not good:
        text = f"Bad metric created during request: {json.dumps(metrics, default=str)}"
        raise Refused(text, 500, "MICROSERVICE_BAD_METRIC")
