"""One gateway with only this protocol on, over HTTP and over gRPC."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.v2 import models
from live import LiveGateway, gateway

CONFIG = """
models_dir = {models}
[gateway]
protocols = ["v2"]
device = "cpu"
grpc_port = {grpc}
[limits]
body_bytes = 4194304
elements = 1000000
[models_control]
enabled = true
roots = {roots}
app_codes = ["control"]
[services.locked]
model = "FP32"
app_auth = true
app_codes = ["opensesame"]
[services.FP32]
[services.other]
model = "FP32"
type = "tfserving"
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def grpc_port() -> int:
    """Where the gateway below speaks gRPC."""
    return free_port()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory, grpc_port: int) -> Iterator[LiveGateway]:
    base: Path = tmp_path_factory.mktemp("v2")
    models.write(base / "models")
    models.write_extra(base / "roots")
    paths = {"models": json.dumps(str(base / "models")), "roots": json.dumps(str(base / "roots"))}
    (base / "config.toml").write_text(CONFIG.format(grpc=grpc_port, **paths), "utf-8")
    with gateway(base / "config.toml") as running:
        running.wait_until("/readyz", 200)
        yield running
