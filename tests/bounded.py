"""A gateway with small limits, requests to it in every dialect, and what must hold after each fault."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from live import LiveGateway, gateway, put_echo

CONFIG = """
models_dir = "models"
[limits]
body_bytes = 8_000_000
bodies_bytes = 12_000_000
body_seconds = 1.0
head_seconds = 1.0
stall_seconds = 0.5
connections = 64
wrong_keys_per_second = 50
output_bytes = 4_000_000
[services.slow.limits]
concurrency = 1
queue = 1
[services.rated.limits]
requests_per_second = 1
key = { requests_per_second = 1 }
[services.keyed]
model = "echo"
app_auth = true
app_codes = ["alpha-code", "beta-code"]
[services.keyed.limits]
key = { requests_per_second = 3 }
[services.other]
model = "echo"
app_auth = true
app_codes = ["other-code"]
"""
GOOD = b'{"instances": [1.5]}'
PREDICT = "/v1/models/free:predict"

DIALECTS: dict[str, tuple[str, bytes, Callable[[Any], object]]] = {
    "tfserving": ("/v1/models/{}:predict", GOOD, lambda body: body["error"]),
    "seldon": (
        "/services/{}/api/v1.0/predictions",
        b'{"data": {"ndarray": [1.5]}}',
        lambda body: body["status"]["info"] if body["status"]["status"] == "FAILURE" else None,
    ),
    "sagemaker": ("/endpoints/{}/invocations", b'{"instances": [1.5]}', lambda body: body.get("Message")),
    "container": ("/services/{}/invocations", b'{"instances": [1.5]}', lambda body: body["message"]),
    "v2": (
        "/v2/models/{}/infer",
        b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.5]}]}',
        lambda body: body["error"],
    ),
    "openai": (
        "/services/{}/v1/embeddings",
        b'{"model": "SERVICE", "input": "a"}',
        lambda body: body["error"]["message"] if body["error"].keys() >= {"type", "param", "code"} else None,
    ),
}
"""Path, a good body, and where the text of an error stands in the dialect."""


@contextlib.contextmanager
def limited(base: Path) -> Iterator[LiveGateway]:
    """The gateway, its files in that folder."""
    for name in ("free", "rated", "echo"):
        put_echo(base / "models", name)
    put_echo(base / "models", "slow", "[echo]\ndelay_ms = 400\n")
    (base / "gateway.toml").write_text(CONFIG)
    with gateway(base / "gateway.toml") as running:
        yield running


@contextlib.contextmanager
def unharmed(live: LiveGateway) -> Iterator[None]:
    """Afterwards: alive, healthy, the next good request right, nothing in flight, memory bounded."""
    process = psutil.Process(live.process.pid)
    before = process.memory_info().rss
    yield
    assert httpx.get(f"{live.url}/healthz").status_code == 200
    assert httpx.post(f"{live.url}{PREDICT}", content=GOOD).json() == {"predictions": [1.5]}
    for gauge in ("in_flight", "running", "waiting"):
        live.wait_for_metric(f"tensorgate_requests_{gauge}", 0)
    live.wait_for_metric("tensorgate_body_bytes_held", 0)
    assert process.memory_info().rss - before < 200 << 20


def ask(live: LiveGateway, dialect: str, service: str, **headers: str) -> httpx.Response:
    """A good request of that dialect."""
    path, body, _ = DIALECTS[dialect]
    headers = {"content-type": "application/json"} | headers
    if dialect == "openai":
        headers["x-stainless-lang"] = "python"
        body = body.replace(b"SERVICE", service.encode())
    return httpx.post(f"{live.url}{path.format(service)}", content=body, headers=headers, timeout=20)


def told(dialect: str, reply: httpx.Response) -> str:
    """The text of an error, which must stand where the dialect has it."""
    text = DIALECTS[dialect][2](reply.json())
    assert isinstance(text, str), reply.text
    return text


def logged_once(live: LiveGateway, request_id: str) -> bool:
    """Whether the access log has exactly one line of the request."""
    live.wait_for_log(f'"id":"{request_id}"')
    return live.errors().count(f'"id":"{request_id}"') == 1


def exchange(live: LiveGateway, *pieces: bytes, pause: float = 0.0, seconds: float = 5.0) -> bytes:
    """Everything that is answered to raw bytes, sent piece by piece, until the end of the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", live.port), timeout=seconds) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            while chunk := connection.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass
    return answer


def head(path: str = PREDICT, *lines: str) -> bytes:
    """A request's head."""
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: a", *lines, "", ""]).encode()
