"""Feedback, in: strictly checked, as protobuf's JSON reader does.

Source: seldon-core, proto/prediction.proto (Feedback, SeldonMessage) and python/seldon_core/seldon_methods.py.
"""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from adapters._excerpt import excerpt
from adapters.seldon.messages import DATA, Payload, payload_of
from gateway.errors import MalformedBody

_FEEDBACK: Mapping[str, type | tuple[type, ...]] = {
    "request": dict,
    "response": dict,
    "reward": (int, float, str),
    "truth": dict,
}
_MESSAGE: Mapping[str, type | tuple[type, ...]] = {
    "status": dict,
    "meta": dict,
    "data": dict,
    "binData": (str, bytes),
    "strData": str,
    "jsonData": object,
    "customData": dict,
}
_DATA: Mapping[str, type | tuple[type, ...]] = {"names": list, "tensor": dict, "ndarray": list, "tftensor": dict}
_META: Mapping[str, type | tuple[type, ...]] = {
    "puid": str,
    "tags": dict,
    "routing": dict,
    "requestPath": dict,
    "metrics": list,
}


class Feedback(Struct, frozen=True):
    """What a model is told of one of its answers."""

    document: dict[str, Any]
    request: Payload
    """Without a payload in the feedback, an empty ndarray, or what stands for none."""
    features: Payload | None
    truth: Payload | None
    """None where they carry no data; other payloads reach no model."""
    reward: float
    routing: int | None


def read_feedback(document: Any, unit: str) -> Feedback:
    """The feedback for the unit of that name. Raises MalformedBody, whose text begins with "Invalid JSON"."""
    if not isinstance(document, dict):
        raise MalformedBody("Invalid JSON: feedback is no object")
    _check(document, _FEEDBACK, "Feedback")
    for part in ("request", "response", "truth"):
        message = document.get(part) or {}
        _check(message, _MESSAGE, part)
        _check(message.get("data") or {}, _DATA, f"{part}.data")
        _check(message.get("meta") or {}, _META, f"{part}.meta")
    request, truth = _payload(document, "request"), _payload(document, "truth")
    return Feedback(
        document={**document, "reward": _reward(document.get("reward"))},
        request=request or Payload("strData", "", meta=(document.get("request") or {}).get("meta")),
        features=request if request and request.form in DATA else None,
        truth=truth if truth and truth.form in DATA else None,
        reward=_reward(document.get("reward")),
        routing=_routing(document.get("response") or {}, unit),
    )


def _check(message: Mapping[str, Any], fields: Mapping[str, type | tuple[type, ...]], where: str) -> None:
    for name, value in message.items():
        if name not in fields:
            raise MalformedBody(f"Invalid JSON: {where} has no field {excerpt(name)}; there are: {', '.join(fields)}")
        good = isinstance(value, fields[name]) and not (name == "reward" and isinstance(value, bool))
        if value is not None and not good:
            raise MalformedBody(f"Invalid JSON: {where}.{name} is of the wrong type")


def _payload(document: dict[str, Any], part: str) -> Payload | None:
    message = document.get(part) or {}
    if any(message.get(name) is not None for name in ("data", "jsonData", "strData", "binData")):
        return payload_of({name: value for name, value in message.items() if value is not None})
    return None


def _reward(value: Any) -> float:
    """SPEC: protobuf reads numbers from texts too."""
    try:
        reward = float(value or 0)
    except (ValueError, OverflowError):
        raise MalformedBody("Invalid JSON: Feedback.reward is no number") from None
    if not math.isfinite(reward):
        raise MalformedBody("Invalid JSON: Feedback.reward is no finite number")
    return reward


def _routing(response: dict[str, Any], unit: str) -> int | None:
    routing = (response.get("meta") or {}).get("routing") or {}
    branch = routing.get(unit)
    return branch if type(branch) is int else None
