"""Runs under SeldonClient's interpreter, not under pytest: makes every call and prints what came of them as JSON.

`python seldon_calls.py HOST:PORT`
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict
from seldon_core.proto import prediction_pb2
from seldon_core.seldon_client import SeldonClient
from seldon_core.utils import array_to_grpc_datadef, seldon_message_to_json

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])
HOST = sys.argv[1]


def gateway(name: str, **more: Any) -> SeldonClient:
    """As clients reach a deployment through a mesh: the path names it."""
    return SeldonClient(gateway="ambassador", transport="rest", deployment_name=name, gateway_endpoint=HOST, **more)


def direct(name: str) -> SeldonClient:
    """As clients reach a model's own container."""
    return SeldonClient(microservice_endpoint=f"{HOST}/services/{name}", transport="rest")


def told(answer: Any) -> dict[str, Any]:
    """An answer as JSON can hold it."""
    response = answer.response
    if response is not None and not isinstance(response, dict):
        response = MessageToDict(response)
    return {"success": answer.success, "response": response, "msg": str(answer.msg)}


def message(array: np.ndarray, payload_type: str = "ndarray") -> Any:
    """A message as the client's users build it."""
    return prediction_pb2.SeldonMessage(data=array_to_grpc_datadef(payload_type, array, ["a", "b"]))


CALLS: dict[str, Callable[[], Any]] = {
    "onnx": lambda: gateway("half_plus_three").predict(data=np.array([1.0, 2.0, 5.0])),
    "onnx ndarray": lambda: gateway("half_plus_three").predict(data=np.array([1.0]), payload_type="ndarray"),
    "onnx several": lambda: gateway("iris", client_return_type="proto").predict(data=ROWS),
    "namespace": lambda: gateway("half_plus_three", namespace="ns").predict(data=np.array([1.0])),
    "prefix": lambda: gateway("any").predict(data=np.array([1.0]), gateway_prefix="/services/half_plus_three"),
    "bare": lambda: SeldonClient(gateway="seldon", transport="rest", gateway_endpoint=HOST).predict(
        data=ROWS[:1, :2], payload_type="ndarray", names=["a", "b"]
    ),
    "default proto": lambda: gateway("named", client_return_type="proto").predict(data=ROWS),
    "text": lambda: gateway("echo").predict(str_data="some text"),
    "bytes": lambda: gateway("echo").predict(bin_data=b"\x00\xff"),
    "json": lambda: gateway("echo").predict(json_data={"a": [1, None]}),
    "raw": lambda: gateway("echo").predict(raw_data={"strData": "r", "meta": {"puid": "p", "tags": {"t": 1}}}),
    "meta": lambda: gateway("tagged", client_return_type="proto").predict(data=ROWS, meta={"mine": "m"}),
    "unknown": lambda: gateway("nobody").predict(data=ROWS),
    "refused": lambda: gateway("raiser", client_return_type="proto").predict(str_data="seldon418"),
    "feedback": lambda: gateway("graph", client_return_type="proto").feedback(
        prediction_request=message(ROWS[:, :2]), prediction_response=message(ROWS[:, :2]), reward=0.5
    ),
    "feedback tensor": lambda: gateway("half_plus_three").feedback(
        prediction_request=message(ROWS[:, :2], "tensor"), prediction_truth=message(ROWS[:, :2]), reward=1.0
    ),
    **{
        f"own {method}": partial(direct("graph").microservice, method=method, data=ROWS, names=list("abcd"))
        for method in ("predict", "transform-input", "transform-output", "route")
    },
    "own aggregate": lambda: direct("graph").microservice(method="aggregate", datas=[ROWS, ROWS * 3]),
    "own text": lambda: direct("echo").microservice(method="predict", str_data="t"),
    "own bytes": lambda: direct("echo").microservice(method="predict", bin_data=b"b"),
    "own ndarray": lambda: direct("echo").microservice(method="predict", data=ROWS, payload_type="ndarray"),
    "own feedback": lambda: direct("graph").microservice_feedback(
        prediction_request=message(ROWS[:, :2]), prediction_response=message(ROWS[:, :2]), reward=0.5
    ),
}


if __name__ == "__main__":
    assert seldon_message_to_json(message(ROWS))
    print(json.dumps({name: told(call()) for name, call in CALLS.items()}))  # noqa: T201 - that is its answer
