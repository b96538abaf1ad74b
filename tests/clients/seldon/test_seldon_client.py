"""SeldonClient 1.17.1, unmodified, against a live gateway with ONNX models and user classes."""

import base64
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients.environments import ROOT, run
from live import gateway

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="seldon-core 1.17.1 wants numpy 1, which has no wheel for this Python"
)

CLASSES = ("echo", "named", "tagged", "raiser", "graph")
ROWS = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]
T2, T4 = ["t:0", "t:1"], ["t:0", "t:1", "t:2", "t:3"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What came of every call of seldon_calls.py."""
    base = tmp_path_factory.mktemp("seldon")
    for name in CLASSES:
        (base / "models" / name / "1").mkdir(parents=True)
        shutil.copy(ROOT / "tests" / "data" / "seldon" / "seldon_models.py", base / "models" / name / "1")
        (base / "models" / name / "model.toml").write_text(
            f'backend = "pyclass"\n[pyclass]\nentry = "seldon_models:{name}"\n', "utf-8"
        )
    folders = json.dumps([str(base / "models"), str(ROOT / "configs" / "models")])
    (base / "config.toml").write_text(
        f'models_dir = {folders}\ndefault_service = "echo"\n[gateway]\ndevice = "cpu"\n', "utf-8"
    )
    with gateway(base / "config.toml") as live:
        live.wait_until("/readyz", 200, 60.0)
        script = Path(__file__).with_name("seldon_calls.py")
        yield run("seldon", script, live.url.removeprefix("http://"))


def data(payload: dict[str, Any], names: list[str] | None = None) -> dict[str, Any]:
    """An answer that carries data."""
    return {"data": {"names": names or [], **payload}, "meta": {}}


def tensor(rows: list[list[float]]) -> dict[str, Any]:
    """A matrix as the protocol writes it."""
    return {"tensor": {"shape": [len(rows), len(rows[0])], "values": [value for row in rows for value in row]}}


def scaled(factor: float, more: float = 0.0) -> list[list[float]]:
    """The rows that were sent, scaled."""
    return [[value * factor + more for value in row] for row in ROWS]


EXPECTED: dict[str, Any] = {
    "onnx": data({"tensor": {"shape": [3], "values": [3.5, 4.0, 5.5]}}),
    "onnx ndarray": data({"ndarray": [3.5]}),
    "namespace": data({"tensor": {"shape": [1], "values": [3.5]}}),
    "prefix": data({"tensor": {"shape": [1], "values": [3.5]}}),
    "bare": data({"ndarray": [[5.1, 3.5]]}, T2),
    "text": {"strData": "some text", "meta": {}},
    "bytes": {"binData": base64.b64encode(b"\x00\xff").decode(), "meta": {}},
    "json": {"jsonData": {"a": [1, None]}, "meta": {}},
    "raw": {"strData": "r", "meta": {"puid": "p", "tags": {"t": 1}}},
    "feedback tensor": {"data": {"tensor": {"shape": [0]}}, "meta": {}},
    # As protobuf: whole numbers are floats, and what is empty is left out...
    "default proto": {
        "data": {"names": ["cat", "dog", "fox"], "tensor": {"shape": [2, 3], "values": [0.1, 0.2, 0.7, 0.3, 0.3, 0.4]}},
        "meta": {},
    },
    "feedback": {"data": {"names": T2, "ndarray": [row[:2] for row in ROWS]}, "meta": {}},
    "own predict": {"jsonData": {"last": None}, "meta": {}},
    "own transform-input": data(tensor(scaled(10)), T4),
    "own transform-output": data(tensor(scaled(1, 1)), T4),
    "own route": data(tensor([[1.0]]), ["t:0"]),
    "own aggregate": data(tensor(scaled(2)), T4),
    "own text": {"strData": "t", "meta": {}},
    "own bytes": {"binData": base64.b64encode(b"b").decode(), "meta": {}},
    "own ndarray": data({"ndarray": ROWS}, T4),
    "own feedback": {"data": {"names": T2, "ndarray": [row[:2] for row in ROWS]}, "meta": {}},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_client_is_answered(answers: dict[str, Any], name: str) -> None:
    """The client calls it a success, and understands all of the answer."""
    assert answers[name]["success"], answers[name]
    assert _without_last(answers[name]["response"]) == _near(EXPECTED[name])


def _without_last(response: dict[str, Any]) -> dict[str, Any]:
    """What feedback left in the class depends on the order of the calls."""
    if "last" in (response.get("jsonData") or {}):
        return {**response, "jsonData": {"last": None}}
    return response


def _near(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _near(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_near(item) for item in value]
    return pytest.approx(value) if isinstance(value, float) else value


def test_several_outputs_come_by_name(answers: dict[str, Any]) -> None:
    """A graph with two outputs answers with both, in a form that protobuf takes."""
    response = answers["onnx several"]["response"]
    assert response["jsonData"].keys() == {"species", "scores"}
    assert response["jsonData"]["species"] == ["setosa", "virginica"]


def test_meta_is_understood(answers: dict[str, Any]) -> None:
    """Tags, of the request and of the class, and metrics come through protobuf's strict reader."""
    meta = answers["meta"]["response"]["meta"]
    assert meta["tags"] == {"mine": "m", "run": "r", "stat": 1.0, "both": "runtime"}
    assert {metric["key"] for metric in meta["metrics"]} == {"calls_c", "lat_t", "run_gauge"}


@pytest.mark.parametrize(("name", "reason"), [("unknown", "MODEL_NOT_FOUND"), ("refused", "MY_REASON")])
def test_refusals_are_understood(answers: dict[str, Any], name: str, reason: str) -> None:
    """The client sees a failure, and reads its reason."""
    assert not answers[name]["success"]
    assert answers[name]["response"]["status"]["reason"] == reason
