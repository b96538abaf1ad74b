"""A real gateway's payload log of answers in parts, calls over gRPC and texts of websockets; and their replay."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from conformance.v2.conftest import free_port
from conformance.v2.stub import connect, request
from live import LiveGateway, becomes, gateway, put_echo
from websockets.sync.client import connect as websocket

from gateway.payloadrecord import Content

MODELS = Path(__file__).resolve().parents[2] / "configs" / "models"
CONFIG = """
models_dir = "models"
[gateway]
device = "cpu"
grpc_port = %d
[payload_log]
dir = "payloads"
max_bytes = 20000
"""
CHAT = {"model": "tinychat", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def live(root: Path, port: int) -> Iterator[LiveGateway]:
    for name in ("tinychat", "painter"):
        shutil.copytree(MODELS / name, root / "models" / name)
    put_echo(root / "models", "echo")
    (root / "gateway.toml").write_text(CONFIG % port)
    with gateway(root / "gateway.toml") as live:
        yield live


def record(root: Path, name: str) -> dict[str, Any]:
    """The one of the request with that id."""

    def found() -> list[dict[str, Any]]:
        texts = [file.read_text() for file in sorted((root / "payloads").iterdir())]
        lines = [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["id"] == name]

    assert becomes(lambda: bool(found()), 10)
    (line,) = found()
    return line


def replayed(root: Path, live: LiveGateway, *lines: dict[str, Any], **options: str) -> str:
    """What the command says when it asks them again; it must find nothing different."""
    file = root / "again.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "gateway", "replay", str(file), "--url", live.url, *more]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    return run.stdout


def test_a_stream_is_kept_and_asked_again(live: LiveGateway, root: Path) -> None:
    """All its events, as the client got them; a replay compares what they say."""
    got = httpx.post(f"{live.url}/v1/chat/completions", json={**CHAT, "stream": True}, headers={"X-Request-Id": "chat"})
    line = record(root, "chat")
    assert line["answer"] == {"text": got.text}
    assert got.text.endswith("data: [DONE]\n\n")
    assert (line["service"], line["status"], line["media_type"]) == ("tinychat", 200, got.headers["content-type"])
    assert "1 same, 0 different" in replayed(root, live, line)


def test_a_stream_that_its_client_leaves_is_kept_as_far_as_it_came(live: LiveGateway, root: Path) -> None:
    """With how it ended."""
    body = {**CHAT, "stream": True, "max_tokens": 200, "ignore_eos": True, "n": 4, "temperature": 1}
    with httpx.stream("POST", f"{live.url}/v1/chat/completions", json=body, headers={"X-Request-Id": "left"}) as reply:
        next(reply.iter_lines())
    line = record(root, "left")
    assert line["ended"] == "left"
    assert line["answer"]["text"].startswith("data: ")
    assert "[DONE]" not in line["answer"]["text"]


def test_a_call_over_grpc_is_kept_and_asked_again(live: LiveGateway, root: Path, port: int) -> None:
    """Its messages byte for byte, its status, and no more of its metadata than asking again needs."""
    asked = request("echo", ("x", "FP32", [2], [1.5, 2.5]))
    metadata = (("x-request-id", "rpc"), ("authorization", "Bearer secret"))
    with connect(port) as stub:
        answer = stub("ModelInfer", asked, metadata=metadata)
        stub.refused("ModelInfer", request("nobody"), metadata=(("x-request-id", "rpc-none"),))
        stub("ModelInfer", request("echo", ("x", "FP32", [1], [0.5])), metadata=(("x-request-id", "rpc-one"),))
    line = record(root, "rpc")
    assert (line["method"], line["path"]) == ("GRPC", "/inference.GRPCInferenceService/ModelInfer")
    assert (line["status"], line["protocol"], line["service"]) == (0, "v2", "echo")
    kept = [Content(**line[name]).bytes() for name in ("request", "answer")]
    assert kept == [asked.SerializeToString(), answer.SerializeToString()]
    assert "secret" not in json.dumps(line)
    told = replayed(root, live, line, record(root, "rpc-one"), grpc=f"127.0.0.1:{port}")
    assert "0 -> 0: 2" in told
    assert "2 same, 0 different" in told


def test_a_text_of_a_websocket_is_kept(live: LiveGateway, root: Path) -> None:
    """With the texts that answered it, one a line, as far as they may be kept."""
    with websocket(f"ws://127.0.0.1:{live.port}/services/painter/generate") as socket:
        socket.send(json.dumps({"prompt": "a red seven", "step": 2, "seed": 1}))
        texts = []
        while not texts or json.loads(texts[-1])["type"] != "output":
            texts.append(str(socket.recv(timeout=20)))

    def found() -> list[dict[str, Any]]:
        lines = [line for file in (root / "payloads").iterdir() for line in file.read_text().splitlines()]
        return [json.loads(line) for line in lines if '"WEBSOCKET"' in line and line.endswith("}")]

    assert becomes(lambda: bool(found()), 10)
    (line,) = found()
    assert (line["service"], line["path"]) == ("painter", "/services/painter/generate")
    assert json.loads(line["request"]["text"])["prompt"] == "a red seven"
    assert line["answer"]["text"].splitlines() == texts
