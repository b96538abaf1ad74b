"""The serializers, deserializers and predictors of the sagemaker SDK 2.x, unmodified, against a live gateway."""

import json
from typing import Any

import httpx
import numpy as np
import pytest
from clients.sagemaker.clients import run
from live import LiveGateway

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3], [1e-7, 1 / 3, 2.0, 123456.78]], np.float32)

SENT = ["csv", "csv of a frame", "json", "json instances", "json sparse", "jsonlines", "jsonlines sparse"]
SENT += ["npy", "npy of float64", "recordio", "recordio of float64", "libsvm", "octets"]
READ = ["csv", "json", "jsonlines", "npy", "csv as npy", "json as npy", "frame of json"]
READ += ["string", "bytes", "stream", "recordio"]


@pytest.fixture(scope="module")
def seen(live: LiveGateway) -> dict[str, Any]:
    """What the SDK's classes gave."""
    results: dict[str, Any] = run("sdk_calls.py", live.url, sent=json.dumps(ROWS.tolist()))
    return results


@pytest.fixture(scope="module")
def expected(live: LiveGateway) -> list[list[float]]:
    """The same rows by TF Serving's protocol."""
    reply = httpx.post(f"{live.url}/v1/models/scores:predict", json={"instances": ROWS.tolist()})
    scores: list[list[float]] = np.array(reply.json()["predictions"], np.float32).tolist()
    return scores


@pytest.mark.parametrize("name", SENT)
def test_serializer_is_understood(seen: dict[str, Any], expected: list[list[float]], name: str) -> None:
    """Every serializer's bytes are the same tensor, to the last bit."""
    assert seen["sent"][name] == expected


@pytest.mark.parametrize("name", READ)
def test_deserializer_understands(seen: dict[str, Any], expected: list[list[float]], name: str) -> None:
    """Every deserializer reads the same answer, to the last bit."""
    assert seen["read"][name] == expected


def test_nothing_is_left_out(seen: dict[str, Any]) -> None:
    """What the script tried is what is compared above."""
    assert (list(seen["sent"]), list(seen["read"])) == (SENT, READ)


def test_single_row_is_a_batch_of_one(seen: dict[str, Any], expected: list[list[float]]) -> None:
    """One vector, sent by itself, is one row."""
    assert seen["one row"] == expected[:1]


def test_predictor_of_kmeans(seen: dict[str, Any], expected: list[list[float]]) -> None:
    """KMeansPredictor finds cluster and distance in each record's labels."""
    assert seen["kmeans"] == [[float(np.argmin(row)), min(row)] for row in expected]


def test_line_iterator_ends(seen: dict[str, Any], expected: list[list[float]]) -> None:
    """LineIterator, which never ends on a line without its line feed, gives every record of a streamed answer."""
    assert [np.float32(line).tolist() for line in seen["events"]] == expected
