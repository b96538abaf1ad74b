"""The files of a worker's process, imported as it imports them, and a user's class called through them."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

BACKENDS = Path(__file__).resolve().parents[1] / "backends"

sys.path[:0] = [str(BACKENDS), str(BACKENDS / "shims")]
try:
    contract, payloads, child = (importlib.import_module(name) for name in ("_contract", "_payloads", "_child"))
    user_model = importlib.import_module("seldon_core.user_model")
    flask_utils = importlib.import_module("seldon_core.flask_utils")
finally:
    del sys.path[:2]

SeldonComponent, SeldonResponse = user_model.SeldonComponent, user_model.SeldonResponse
Refusal = flask_utils.SeldonMicroserviceException


def model(kind: type, parameters: dict[str, Any] | None = None) -> Any:
    """The class in its wrapper."""
    original = contract._class
    contract._class = lambda _: kind
    try:
        return contract.Model("users:Kind", parameters)
    finally:
        contract._class = original


def text(value: Any) -> np.ndarray:
    """A payload that is one text, or one piece of bytes."""
    array = np.empty((), object)
    array[()] = value
    return array


def ask(kind: type, x: Any = None, call: str = "predict", **parameters: Any) -> Any:
    """The answer to one call."""
    inputs = {} if x is None else {"X": x if isinstance(x, np.ndarray) else np.array(x)}
    wrapped = model(kind)
    return wrapped.answer(wrapped.call(call, inputs, parameters, False), parameters)


def y(answer: Any) -> Any:
    """The answer's tensor, plain."""
    return answer.outputs["Y"].tolist()
