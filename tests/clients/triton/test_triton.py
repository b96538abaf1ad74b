"""Triton's own client, unmodified, over HTTP and over gRPC, against a live gateway."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients.environments import interpreter
from conformance.v2 import models
from conformance.v2.conftest import free_port
from live import gateway

HERE = Path(__file__).resolve().parent
SECONDS = 120

CONFIG = """
models_dir = "models"
[gateway]
device = "cpu"
grpc_port = {grpc}
[models_control]
enabled = true
roots = "roots"
app_codes = ["opensesame"]
[services.FP32]
[services.locked]
model = "FP32"
app_auth = true
app_codes = ["opensesame"]
"""

STATUSES = {
    "http": {"unknown_model": "404", "unknown_version": "404", "metadata": "404", "load": "404"},
    "grpc": dict.fromkeys(("unknown_model", "unknown_version", "metadata", "load"), "StatusCode.NOT_FOUND"),
}
WRONG = {"http": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}
LOCKED = {"http": "401", "grpc": "StatusCode.UNAUTHENTICATED"}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where a gateway with the cases' models listens."""
    base = tmp_path_factory.mktemp("triton")
    models.write(base / "models")
    models.write_extra(base / "roots")
    port = free_port()
    (base / "config.toml").write_text(CONFIG.format(grpc=port), "utf-8")
    with gateway(base / "config.toml") as live:
        live.wait_until("/readyz", 200)
        yield {"http": f"127.0.0.1:{live.port}", "grpc": f"127.0.0.1:{port}"}


@pytest.fixture(scope="module", params=["http", "grpc"])
def transport(request: pytest.FixtureRequest) -> str:
    """One of the client's two."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def seen(addresses: dict[str, str], transport: str) -> dict[str, Any]:
    """What the client made of each of its calls."""
    done = subprocess.run(
        [interpreter("triton"), HERE / "triton_calls.py", transport, addresses[transport]],
        env={"PATH": os.environ["PATH"], "HOME": os.devnull, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_every_datatype(seen: dict[str, Any]) -> None:
    """Every datatype comes back bit by bit, as binary over HTTP and as raw contents over gRPC."""
    assert set(seen["tensors"]) == set(models.DTYPES)
    assert {name: came for name, (_, came) in seen["tensors"].items()} == {
        name: went for name, (went, _) in seen["tensors"].items()
    }


def test_json(seen: dict[str, Any], transport: str) -> None:
    """Over HTTP the same values pass as JSON."""
    if transport == "http":
        assert [came for _, came in seen["text"].values()] == [went for went, _ in seen["text"].values()]
    assert ("text" in seen) == (transport == "http")


def test_server(seen: dict[str, Any]) -> None:
    """The server and its models describe themselves."""
    told = seen["server"]
    assert (told["live"], told["ready"], told["server"]) == (True, True, "tensorgate")
    assert told["model_ready"] == [True, True, False, False]
    assert told["metadata"]["versions"] == ["1", "2"]
    assert [int(size) for size in told["metadata"]["inputs"][0]["shape"]] == [-1, 2]
    listed = told["index"]["models"] if isinstance(told["index"], dict) else told["index"]
    assert {"versions", "BF16"} <= {one["name"] for one in listed if one["state"] == "READY"}


def test_outputs(seen: dict[str, Any]) -> None:
    """Outputs are given as asked for, with the request's id, from the version that was named."""
    assert seen["outputs"] == {"a": None, "b": [3], "id": "id-1", "version": "1"}


def test_errors(seen: dict[str, Any], transport: str) -> None:
    """A mistake raises the client's exception with the status and a text that helps."""
    found = {name: status for name, (status, _) in seen["errors"].items()}
    assert found == dict.fromkeys(found, WRONG[transport]) | STATUSES[transport]
    assert "is sent as FP32, but the model takes INT64" in seen["errors"]["datatype"][1]


def test_repository(seen: dict[str, Any]) -> None:
    """A model comes and goes by call."""
    assert seen["repository"] == [False, True, False]


def test_key(seen: dict[str, Any], transport: str) -> None:
    """A key travels in the headers, or in the metadata."""
    assert seen["key"] == [LOCKED[transport], [1.0]]


def test_compressed(seen: dict[str, Any]) -> None:
    """A compressed request is read."""
    assert seen["compressed"] == seen["tensors"]["FP32"][0]
