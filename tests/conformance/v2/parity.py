"""The Open Inference Protocol's ways to carry a tensor."""

import json
from typing import Any

import numpy as np
from conformance.senders import Gate, Sender, array_of, post
from conformance.v2.cases import binary
from conformance.v2.stub import FIELDS, connect, request

from adapters.v2 import raw

DATATYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "uint64": "UINT64", "uint8": "UINT8"}
DATATYPES |= {"bool": "BOOL", "object": "BYTES"}


def _named(tensor: np.ndarray) -> tuple[str, list[int]]:
    return DATATYPES[tensor.dtype.name], list(tensor.shape)


def _text(gate: Gate, model: str, tensor: np.ndarray, nested: bool = False) -> np.ndarray:
    datatype, shape = _named(tensor)
    data = tensor.tolist() if nested else tensor.ravel().tolist()
    document = {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]}
    (output,) = post(f"{gate.url}/v2/models/{model}/infer", document).json()["outputs"]
    assert (output["datatype"], output["shape"]) == (datatype, shape)
    return array_of(output["data"], tensor.dtype).reshape(shape)


def _nested(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    return _text(gate, model, tensor, nested=True)


def _bytes(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    datatype, shape = _named(tensor)
    data = raw.write(tensor, datatype)
    item = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
    body, headers = binary({"inputs": [item], "parameters": {"binary_data_output": True}}, data)
    reply = post(f"{gate.url}/v2/models/{model}/infer", body, headers)
    length = int(reply.headers["inference-header-content-length"])
    (output,) = json.loads(reply.content[:length])["outputs"]
    return _read(reply.content[length:], output["datatype"], output["shape"])


def _read(data: bytes, datatype: str, shape: Any) -> np.ndarray:
    tensor = raw.read(data, datatype, tuple(shape), int(np.prod(shape)))
    return (
        np.array([item.decode() for item in tensor.ravel()], object).reshape(shape) if datatype == "BYTES" else tensor
    )


def _grpc_raw(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    datatype, shape = _named(tensor)
    with connect(gate.grpc_port) as stub:
        answer = stub("ModelInfer", request(model, ("x", datatype, shape, raw.write(tensor, datatype))))
    return _read(answer.raw_output_contents[0], answer.outputs[0].datatype, answer.outputs[0].shape)


def _grpc_typed(gate: Gate, model: str, tensor: np.ndarray) -> np.ndarray:
    datatype, shape = _named(tensor)
    values = list(raw.octets(tensor)) if datatype == "BYTES" else tensor.ravel().tolist()
    with connect(gate.grpc_port) as stub:
        answer = stub("ModelInfer", request(model, ("x", datatype, shape, values)))
    found = list(getattr(answer.outputs[0].contents, FIELDS[datatype]))
    found = [item.decode() for item in found] if datatype == "BYTES" else found
    return array_of(found, tensor.dtype).reshape(shape)


SENDERS = {
    "json": Sender(_text),
    "json-nested": Sender(_nested),
    "binary": Sender(_bytes),
    "grpc-raw": Sender(_grpc_raw),
    "grpc-typed": Sender(_grpc_typed),
}
