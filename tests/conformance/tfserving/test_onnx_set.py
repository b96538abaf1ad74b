"""ONNX's own backend tests and the dtype identities, served over HTTP through predict."""

import base64
import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import onnx
import onnx_cases
import pytest
from live import gateway

EMPTY = "test_triu_zero"
"""The one test with an input that JSON cannot write: of shape [0, 5]."""
NAMES = onnx_cases.answerable()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A gateway that serves the whole set, each test's model under its name, and the dtype identities."""
    folder = tmp_path_factory.mktemp("onnx-set")
    for name in NAMES:
        (folder / name / "1").mkdir(parents=True)
        shutil.copy(onnx_cases.NODE_TESTS / name / "model.onnx", folder / name / "1")
    for path in onnx_cases.DTYPE_IDENTITY.glob("*.onnx"):
        (folder / path.stem / "1").mkdir(parents=True)
        shutil.copy(path, folder / path.stem / "1" / "model.onnx")
    with gateway("--models", folder) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        yield client


def predict(client: httpx.Client, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs by name, as JSON values."""
    declared = client.get(f"/v1/models/{name}/metadata").json()["metadata"]["signature_def"]["signature_def"]
    signature = declared["serving_default"]
    # One input by its value alone, several by their names; an object would be taken for names.
    body = {"inputs": inputs if len(inputs) != 1 else next(iter(inputs.values()))}
    reply = client.post(f"/v1/models/{name}:predict", content=json.dumps(body))
    assert reply.status_code == 200, reply.text
    outputs = json.loads(reply.text)["outputs"]
    return outputs if len(signature["outputs"]) > 1 else {next(iter(signature["outputs"])): outputs}


def as_array(value: Any, expected: np.ndarray) -> np.ndarray:
    """A JSON value as an array of the dtype and, where it is empty, the shape expected."""
    array = np.array(value, dtype=expected.dtype)
    return array.reshape(expected.shape) if array.size == expected.size == 0 else array


@pytest.mark.parametrize("name", NAMES)
def test_a_node_test_is_answered_over_http(client: httpx.Client, name: str) -> None:
    """The predicted values equal the recorded ones."""
    case = onnx_cases.read(name)
    if any(np.array(value.tolist(), value.dtype).shape != value.shape for value in case.inputs.values()):
        # JSON has only one empty list, whatever the shape behind the zero.
        assert [name, client.post(f"/v1/models/{name}:predict", content='{"inputs": []}').status_code] == [EMPTY, 400]
        return
    outputs = predict(client, name, {key: value.tolist() for key, value in case.inputs.items()})
    assert outputs.keys() == case.outputs.keys()
    for output, expected in case.outputs.items():
        onnx_cases.assert_same(expected, as_array(outputs[output], expected), case.dtypes[output])


@pytest.mark.parametrize("path", sorted(onnx_cases.DTYPE_IDENTITY.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_dtype_comes_back_as_it_went(client: httpx.Client, path: Any) -> None:
    """The limits of every dtype, through JSON and back."""
    graph = onnx.load(path).graph
    values: dict[str, Any] = {}
    for one in graph.input:
        kind = one.type.tensor_type.elem_type
        name = onnx.TensorProto.DataType.Name(kind).lower()
        values[one.name] = [_extremes(name)]
    outputs = predict(client, path.stem, values)
    assert len(outputs) == len(values)
    for one, answer in zip(values.values(), (outputs[output.name] for output in graph.output), strict=True):
        assert json.dumps(_decoded(answer)) == json.dumps(one)


def _decoded(value: Any) -> Any:
    """The value with its base64 objects as text: an output called ..._bytes is written so."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return base64.b64decode(value["b64"]).decode() if isinstance(value, dict) else value


def _extremes(name: str) -> list[Any]:
    if name == "string":
        return ["žluťoučký", "", "\x00日本😀"]
    if name == "bool":
        return [True, False, True]
    if name in ("float", "double", "float16", "bfloat16"):
        return [1.5, float("-inf"), -0.0]
    info = np.iinfo(name)
    return [info.min, 0, info.max]
