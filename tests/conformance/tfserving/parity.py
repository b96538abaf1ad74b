"""TF Serving's ways to carry a tensor."""

import numpy as np
from conformance.senders import Gate, Sender, array_of, post


def _row(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    reply = post(f"{gate.url}/v1/models/{model}:predict", {"instances": tensor.tolist()})
    return array_of(reply.json()["predictions"], tensor.dtype)


def _named_rows(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    reply = post(f"{gate.url}/v1/models/{model}:predict", {"instances": [{"x": row} for row in tensor.tolist()]})
    return array_of(reply.json()["predictions"], tensor.dtype)


def _column(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    reply = post(f"{gate.url}/v1/models/{model}:predict", {"inputs": {"x": tensor.tolist()}})
    return array_of(reply.json()["outputs"], tensor.dtype)


SENDERS = {"row": Sender(_row), "named-rows": Sender(_named_rows), "column": Sender(_column)}
