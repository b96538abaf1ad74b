"""Services with nodes on a running gateway: more under load and fewer after it, without a failed request."""

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest
from admin import Admin
from live import LiveGateway, becomes, gateway

CLASS = """
import os, time

class slow:
    def predict(self, X, names=None):
        time.sleep(0.05)
        return [[os.getpid(), float(os.environ.get("LEVEL", 0))]]
"""
CONFIG = """
models_dir = "models"
[gateway]
data_dir = "data"
admin_port = 0
[services.slow]
environment = { LEVEL = "7" }
[services.slow.scaling]
min = 1
max = 3
window_seconds = 2
expectations = [{ metric = "concurrency", value = 2 }]
up = { max_nodes = 1, interval_seconds = 0.5 }
down = { max_nodes = 1 }
"""


WORKERS = pytest.mark.parametrize("workers", [1, 2])


def put(folder: Path, workers: int = 1, config: str = CONFIG) -> Path:
    """The configuration, beside a class that takes its time."""
    version = folder / "models" / "slow" / "1"
    version.mkdir(parents=True)
    (version / "slow.py").write_text(CLASS)
    (version.parent / "model.toml").write_text('backend = "pyclass"\n[pyclass]\nentry = "slow:slow"\n')
    (folder / "gateway.toml").write_text(config.replace("[gateway]", f"[gateway]\nworkers = {workers}"))
    return folder / "gateway.toml"


def ask(live: LiveGateway) -> httpx.Response:
    return httpx.post(f"{live.url}/services/slow/api/v1.0/predictions", json={"data": {"ndarray": [[1]]}}, timeout=30)


def press(live: LiveGateway, processes: int) -> list[tuple[int, int]]:
    """Ask from twelve sides until so many processes have answered; each answer's status and process."""
    seen: list[tuple[int, int]] = []
    until = time.monotonic() + 30

    def load() -> None:
        while time.monotonic() < until and len({pid for _, pid in seen}) < processes:
            reply = ask(live)
            pid = int(reply.json()["data"]["ndarray"][0][0]) if reply.status_code == 200 else 0
            seen.append((reply.status_code, pid))

    threads = [threading.Thread(target=load) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


@WORKERS
def test_nodes_follow_the_load(tmp_path: Path, workers: int) -> None:
    """Up step by step while requests wait, down after the window, and nobody notices."""
    with gateway(put(tmp_path, workers)) as live:
        seen = press(live, 3)
        assert {200} == {status for status, _ in seen}
        assert len({pid for _, pid in seen}) == 3
        live.wait_for_log("slow: 2 -> 3 nodes")

        def shrunk() -> bool:
            assert ask(live).status_code == 200
            return "slow: 2 -> 1 nodes" in live.errors()

        assert becomes(shrunk, 20.0)
        left = {int(ask(live).json()["data"]["ndarray"][0][0]) for _ in range(5)}
        assert len(left) == 1
        gone = {pid for _, pid in seen} - left
        assert becomes(lambda: not any(Path(f"/proc/{pid}").exists() for pid in gone), 5.0)


@WORKERS
def test_a_canary_has_a_rule_of_its_own(tmp_path: Path, workers: int) -> None:
    """Its load scales it, not the service; when it takes over it has the nodes that it had."""
    rule = "{ min = 1, max = 3, window_seconds = 60, expectations = [{ metric = 'concurrency', value = 2 }] }"
    patient = CONFIG.replace("window_seconds = 2", "window_seconds = 60")
    canary = f'[services.slow.canary]\nmodel = "other"\nweight = 100\nscaling = {rule}\n'
    config = put(tmp_path, workers, patient + canary)
    shutil.copytree(tmp_path / "models" / "slow", tmp_path / "models" / "other")
    with gateway(config) as live:
        admin = Admin(live)
        assert {200} == {status for status, _ in press(live, 3)}
        live.wait_for_log("-> 3 nodes")
        assert "slow: 1 ->" not in live.errors()
        decisions = admin("GET", "/services/slow/scaling/decisions?variant=canary")
        assert decisions[-1]["target"] == 3
        assert "slow/canary" in next(one["text"] for one in admin("GET", "/events") if one["kind"] == "scale")
        assert {1} == {one["nodes"] for one in admin("GET", "/services/slow/scaling/decisions")}
        event = next(one for one in admin("GET", "/events?service=slow") if one["kind"] == "scale")
        assert event["data"]["readings"][0]["metric"] == "concurrency"
        admin("POST", "/services/slow/canary/takeover")
        assert len({pid for _, pid in press(live, 3)}) == 3


@WORKERS
def test_a_service_s_environment_lies_over_the_package_s(tmp_path: Path, workers: int) -> None:
    """What the service says reaches the class; a node that is killed is replaced."""
    with gateway(put(tmp_path, workers)) as live:
        pid, level = ask(live).json()["data"]["ndarray"][0]
        assert level == 7
        os.kill(int(pid), signal.SIGKILL)
        assert becomes(lambda: ask(live).status_code == 200, 5.0)
        assert ask(live).json()["data"]["ndarray"][0][0] != pid
