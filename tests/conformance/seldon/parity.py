"""Seldon's ways to carry a tensor."""

from typing import Any

import numpy as np
from conformance.senders import Gate, Sender, array_of, post

from adapters._tftensor import decode_tftensor, encode_tftensor

NUMBERS = frozenset({"float32", "float64", "int64", "uint64", "uint8"})


def _ask(gate: Gate, model: str, data: Any) -> Any:
    return post(f"{gate.url}/services/{model}/api/v1.0/predictions", {"data": data}).json()["data"]


def _tensor(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    given = {"shape": list(tensor.shape), "values": tensor.ravel().tolist()}
    found = _ask(gate, model, {"tensor": given})["tensor"]
    return array_of(found["values"], tensor.dtype).reshape(found["shape"])


def _ndarray(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    return array_of(_ask(gate, model, {"ndarray": tensor.tolist()})["ndarray"], tensor.dtype)


def _tftensor(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    return decode_tftensor(_ask(gate, model, {"tftensor": encode_tftensor(tensor)})["tftensor"], 10_000)


SENDERS = {
    "tensor": Sender(_tensor, NUMBERS),
    "ndarray": Sender(_ndarray),
    "tftensor": Sender(_tftensor, NUMBERS),
}
