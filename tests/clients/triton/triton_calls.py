"""Runs under tritonclient's interpreter, not under pytest: does things with one of its clients, prints them as JSON.

`python triton_calls.py http|grpc ADDRESS`; the same things are done over either.
"""

import base64
import json
import sys
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.utils import InferenceServerException

warnings.simplefilter("error")

KEY = {"authorization": "APPCODE opensesame"}

TENSORS: dict[str, np.ndarray] = {
    "BOOL": np.array([[True, False]]),
    "INT8": np.array([-128, 127], np.int8),
    "INT16": np.array([-32768, 1], np.int16),
    "INT32": np.array([-(2**31), 1], np.int32),
    "INT64": np.array([-(2**63), 2**53 + 1], np.int64),
    "UINT8": np.array([0, 255], np.uint8),
    "UINT16": np.array([0, 65535], np.uint16),
    "UINT32": np.array([0, 2**32 - 1], np.uint32),
    "UINT64": np.array([0, 2**64 - 1], np.uint64),
    "FP16": np.array([6e-8, np.inf, np.nan], np.float16),
    "FP32": np.array([0.1, 1e-45, -0.0, np.inf, np.nan], np.float32).reshape(5, 1),
    "FP64": np.array([0.1, 5e-324]),
    "BF16": np.array([1.5, -0.0078125, np.inf, np.nan], ml_dtypes.bfloat16),
    "BYTES": np.array([b"", b"\xff\x00", "été".encode()], object),
}


def bits(array: np.ndarray) -> str:
    """All that an array is."""
    data = b"|".join(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return f"{array.dtype.name} {list(array.shape)} {base64.b64encode(data).decode()}"


class Calls:
    """One client's calls."""

    def __init__(self, module: Any, address: str) -> None:
        self.module = module
        self.client = module.InferenceServerClient(address)

    def given(self, name: str, array: np.ndarray, datatype: str, **options: Any) -> Any:
        """One input."""
        made = self.module.InferInput(name, list(array.shape), datatype)
        made.set_data_from_numpy(array, **options)
        return made

    def echo(self, datatype: str, array: np.ndarray, **options: Any) -> str:
        """What the echo of that datatype gives back."""
        result = self.client.infer(datatype, [self.given("x", array, datatype)], **options)
        return bits(result.as_numpy("x"))

    def refused(self, do: Any) -> list[str]:
        """The status and the text of a call that must fail."""
        try:
            do()
        except InferenceServerException as error:
            return [str(error.status()), error.message()]
        return ["answered", ""]

    def tensors(self) -> dict[str, Any]:
        """Every datatype, there and back."""
        return {name: [bits(array), self.echo(name, array)] for name, array in TENSORS.items()}

    def server(self) -> dict[str, Any]:
        """What the server and its models say."""
        client = self.client
        as_json = {"as_json": True} if self.module is over_grpc else {}
        return {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "model_ready": [
                client.is_model_ready(name, version)
                for name, version in (("versions", ""), ("versions", "2"), ("versions", "9"), ("nope", ""))
            ],
            "server": client.get_server_metadata(**as_json)["name"],
            "metadata": client.get_model_metadata("versions", **as_json),
            "index": client.get_model_repository_index(**as_json),
        }

    def outputs(self) -> dict[str, Any]:
        """Some outputs, each in its order; an id and a version."""
        inputs = [
            self.given("a", np.ones((1, 2), np.float32), "FP32"),
            self.given("b", np.array([3], np.int64), "INT64"),
        ]
        one = self.client.infer("two", inputs, outputs=[self.module.InferRequestedOutput("b")], request_id="id-1")
        first = self.client.infer("versions", [self.given("x", np.ones((1, 2), np.float32), "FP32")], model_version="1")
        told = first.get_response()
        return {
            "b": one.as_numpy("b").tolist(),
            "a": one.as_numpy("a"),
            "id": self.member(one.get_response(), "id"),
            "version": self.member(told, "model_version"),
        }

    def member(self, response: Any, name: str) -> Any:
        """A member of either client's response."""
        return response[name] if isinstance(response, dict) else getattr(response, name)

    def errors(self) -> dict[str, list[str]]:
        """What mistakes look like to the caller."""
        one = self.given("x", np.ones(1, np.float32), "FP32")
        return {
            "unknown_model": self.refused(lambda: self.client.infer("nope", [one])),
            "unknown_version": self.refused(lambda: self.client.infer("versions", [one], model_version="9")),
            "datatype": self.refused(lambda: self.client.infer("INT64", [one])),
            "shape": self.refused(lambda: self.client.infer("rows", [one])),
            "metadata": self.refused(lambda: self.client.get_model_metadata("nope")),
            "load": self.refused(lambda: self.client.load_model("nope", headers=KEY)),
            "config": self.refused(lambda: self.client.load_model("extra", config="{}", headers=KEY)),
        }

    def repository(self) -> list[Any]:
        """A model that comes and goes."""
        told = [self.client.is_model_ready("extra")]
        for _ in range(2):
            self.client.load_model("extra", headers=KEY)
        told.append(self.client.is_model_ready("extra"))
        self.client.unload_model("extra", headers=KEY)
        return [*told, self.client.is_model_ready("extra")]

    def key(self) -> list[Any]:
        """A service with a key, without it and with it."""
        one = self.given("x", np.ones(1, np.float32), "FP32")
        without = self.refused(lambda: self.client.infer("locked", [one]))
        answer = self.client.infer("locked", [one], headers=KEY)
        return [without[0], answer.as_numpy("x").tolist()]

    def compressed(self) -> str:
        """A compressed request."""
        name = "compression_algorithm" if self.module is over_grpc else "request_compression_algorithm"
        return self.echo("FP32", TENSORS["FP32"], **{name: "gzip"})


def text_form(address: str) -> dict[str, Any]:
    """Over HTTP alone: JSON instead of binary, in and out."""
    calls = Calls(over_http, address)
    told = {}
    for name, array in TENSORS.items():
        if name == "BYTES":
            array = np.array(["", "été"], object)
        if name in ("FP16", "BF16"):
            continue  # this client sends them as binary only
        given = calls.given("x", array, name, binary_data=False)
        wanted = [over_http.InferRequestedOutput("x", binary_data=False)]
        answer = calls.client.infer(name, [given], outputs=wanted).as_numpy("x")
        encoded = np.array([item.encode() for item in array], object) if name == "BYTES" else array
        if name == "BYTES":
            answer = np.array([item if isinstance(item, bytes) else item.encode() for item in answer], object)
        told[name] = [bits(encoded), bits(answer)]
    return told


def main() -> None:
    """Everything that the named client can do."""
    transport, address = sys.argv[1:]
    calls = Calls(over_http if transport == "http" else over_grpc, address)
    names = ("tensors", "server", "outputs", "errors", "repository", "key", "compressed")
    told = {name: getattr(calls, name)() for name in names}
    if transport == "http":
        told["text"] = text_form(address)
    json.dump(told, sys.stdout)


main()
