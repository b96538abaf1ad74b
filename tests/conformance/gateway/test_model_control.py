"""Models loaded and unloaded by call over HTTP, and the container that SageMaker starts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live import LiveGateway, gateway

KEY = {"X-Tensorgate-Key": "control-code"}


def put(folder: Path) -> Path:
    """An echo's folder."""
    folder.mkdir(parents=True)
    (folder / "model.toml").write_text('backend = "echo"\n[echo.inputs.x]\ndtype = "float32"\nshape = [-1]\n')
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control")


@pytest.fixture(scope="module")
def live(base: Path) -> Iterator[LiveGateway]:
    """A gateway with two models of its own, one behind a key, and a root with two more."""
    for name in ("own", "free"):
        put(base / "models" / name)
    for name in ("a", "b"):
        put(base / "root" / name / "model")
    (base / "gateway.toml").write_text(
        'models_dir = "models"\n[services.own]\napp_auth = true\napp_codes = ["own-code"]\n'
        '[models_control]\nenabled = true\nroots = "root"\napp_codes = ["control-code"]\n'
    )
    with gateway(base / "gateway.toml") as running:
        running.wait_until("/readyz", 200)
        yield running


def load(live: LiveGateway, name: str, url: Path | str, key: dict[str, str] = KEY) -> httpx.Response:
    return httpx.post(f"{live.url}/models", json={"model_name": name, "url": str(url)}, headers=key)


def test_a_model_comes_serves_and_goes(live: LiveGateway, base: Path) -> None:
    """By every protocol, as soon as the call returns, until the call that unloads it returns."""
    assert load(live, "hash-a", base / "root/a/model").status_code == 200
    assert load(live, "hash-a", base / "root/a/model").status_code == 409
    invoked = httpx.post(f"{live.url}/models/hash-a/invoke", content="1\n2", headers={"Content-Type": "text/csv"})
    assert (invoked.status_code, invoked.json()["predictions"][0]) == (200, {"x": 1.0})
    predicted = httpx.post(f"{live.url}/v1/models/hash-a:predict", json={"instances": [1.0]})
    assert predicted.json() == {"predictions": [1.0]}
    assert httpx.delete(f"{live.url}/models/hash-a", headers=KEY).status_code == 200
    assert httpx.post(f"{live.url}/models/hash-a/invoke", content="1").status_code == 404
    assert httpx.delete(f"{live.url}/models/hash-a", headers=KEY).status_code == 404


@pytest.mark.parametrize(
    ("key", "status"), [({}, 401), ({"X-Tensorgate-Key": "wrong"}, 401), ({"X-Tensorgate-Key": "own-code"}, 403)]
)
def test_only_the_control_key_may(live: LiveGateway, base: Path, key: dict[str, str], status: int) -> None:
    """Loading, listing and unloading alike."""
    assert load(live, "x", base / "root/b/model", key).status_code == status
    assert httpx.get(f"{live.url}/models", headers=key).status_code == status
    assert httpx.get(f"{live.url}/models/x", headers=key).status_code == status
    assert httpx.delete(f"{live.url}/models/x", headers=key).status_code == status


@pytest.mark.parametrize("url", ["{base}/models/own", "{base}/root/../models/own", "/etc", "file:///etc"])
def test_what_lies_outside_the_roots_is_forbidden(live: LiveGateway, base: Path, url: str) -> None:
    """With no word of what lies there."""
    reply = load(live, "x", url.replace("{base}", str(base)))
    assert (reply.status_code, "outside" in reply.text) == (403, True)


def test_it_is_off_unless_configured(base: Path, live: LiveGateway) -> None:
    """403 that names the table."""
    with gateway("--models", base / "models") as plain:
        plain.wait_until("/readyz", 200)
        reply = load(plain, "x", base / "models/own", {})
        assert (reply.status_code, "models_control" in reply.text) == (403, True)


# SageMaker's container...


def test_a_multi_model_container_starts_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` and a variable are enough: healthy without models, and their root is SageMaker's."""
    monkeypatch.setenv("SAGEMAKER_MULTI_MODEL", "true")
    with gateway("--host", "127.0.0.1") as live:
        assert live.wait_until("/ping", 200).content == b""
        assert httpx.get(f"{live.url}/models").json() == {"models": []}
        assert load(live, "x", "/etc", {}).status_code == 403


def test_a_container_listens_where_sagemaker_says(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All interfaces, and variables of the protocol's own."""
    put(tmp_path / "m")
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "18080")  # `--port 0` wins, and keeps the test off taken ports
    monkeypatch.setenv("SAGEMAKER_MAX_PAYLOAD_IN_MB", "1")
    with gateway("--models", tmp_path) as live:
        assert live.url.startswith("http://0.0.0.0:")
        live.wait_until("/ping", 200)
        assert httpx.get(f"{live.url}/execution-parameters").json()["MaxPayloadInMB"] == 1
        assert httpx.post(f"{live.url}/invocations", content=b"1\n" * (1 << 20)).status_code == 413


def test_a_variable_without_sense_stops_the_container() -> None:
    """At the start, by its name."""
    environment = os.environ | {"SAGEMAKER_BIND_TO_PORT": "http"}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve"],
        env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "sagemaker: SAGEMAKER_BIND_TO_PORT: expected a whole number of at least 1, got 'http'" in done.stderr
