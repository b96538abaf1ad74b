"""The peers' environments and processes, and the gateway's beside them."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from contenders import ROOT, Contender
from peer_table import Launch, Peer
from rivals import ONE_THREAD, end, free_ports

ENVIRONMENTS = Path(os.environ.get("BENCH_PEERS", ROOT / ".venv-peers"))
DEBIANS_PYTHON = "/usr/bin/python3"
START_SECONDS = 90.0
POLL_SECONDS = 0.02
PORTS = 5


class Started(Contender):
    """A server that was waited for."""

    def __init__(
        self, name: str, url: str, process: "subprocess.Popen[str]", start_seconds: float, key: str = ""
    ) -> None:
        super().__init__(name, url, process)
        self.start_seconds = start_seconds
        self.key = key


def installed(peer: Peer) -> str | None:
    """The version of the peer in its environment, which is made if it is not there; None if it cannot be had."""
    made = environment(peer.name, peer.packages, DEBIANS_PYTHON if peer.system_python else sys.executable)
    return peer.packages[0].partition("==")[2] if made else None


def environment(name: str, packages: Sequence[str], python: str = sys.executable) -> Path | None:
    """The folder of an environment with those packages, made on first use; None, with the reason printed."""
    folder = ENVIRONMENTS / name
    stamp = folder / "installed"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"\n{name}: installing {', '.join(packages)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        for command in ([python, "-m", "venv", str(folder)], [*pip, *packages]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
                print(f"{name}: left out, for it cannot be installed: {said[-1]}")
                return None
        stamp.write_text(wanted)
    return folder


def start(stack: contextlib.ExitStack, peer: Peer, model: Path, scratch: Path) -> Started | None:
    """The peer, ready; None, with the reason printed, if it does not get so far."""
    folder = scratch / "peer"
    folder.mkdir()
    launch = Launch(ENVIRONMENTS / peer.name / "bin", folder, tuple(free_ports(PORTS)))
    address = f"http://127.0.0.1:{launch.ports[0]}"
    environment = os.environ | ONE_THREAD | {"BENCH_MODEL": str(model)} | peer.environment(launch)
    said = scratch / "peer.log"
    with said.open("w") as log:
        process = subprocess.Popen(
            peer.command(launch), cwd=folder, env=environment, stdout=log, stderr=log, text=True, start_new_session=True
        )
    stack.callback(end, process)
    seconds = _until_ready(process, f"{address}{peer.ready}")
    if seconds is None:
        last = said.read_text(errors="replace").splitlines()[-3:]
        print(f"{peer.name}: left out, for it does not start: {' / '.join(last)}")
        return None
    return Started(peer.name, f"{address}{peer.speech.path}", process, seconds)


def gateway(stack: contextlib.ExitStack, models: Path, path: str) -> Started:
    """The gateway as it is delivered, its one service behind a key."""
    key = secrets.token_hex(16)
    settings = models.parent / "gateway.toml"
    settings.write_text(f'models_dir = "models"\n[services.mlp]\napp_auth = true\napp_codes = ["{key}"]\n')
    (port,) = free_ports(1)
    serve = ["-m", "gateway", "serve", str(settings), "--port", str(port), "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, *serve], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    stack.callback(end, process)
    seconds = _until_ready(process, f"http://127.0.0.1:{port}/readyz")
    if seconds is None:
        sys.exit("the gateway does not start")
    return Started("gateway", f"http://127.0.0.1:{port}{path}", process, seconds, key)


def _until_ready(process: "subprocess.Popen[str]", url: str) -> float | None:
    """Seconds until it said that it is ready."""
    started = time.monotonic()
    while time.monotonic() < started + START_SECONDS and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return time.monotonic() - started
        time.sleep(POLL_SECONDS)
    return None
