"""Other servers for the same work, each from an environment of its own, in as many processes as it wants."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import mlp
import numpy as np
from contenders import HERE, Contender, gateway_command, start

CLASS_NAME = "mlp_class"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
START_SECONDS = 60.0
POLL_SECONDS = 0.1
GRACE_SECONDS = 10.0


def write_class(models: Path, python: str) -> Path:
    """The user's class beside the ONNX model, to be run by that interpreter; returns the folder with its file."""
    folder = models / CLASS_NAME / "1"
    folder.mkdir(parents=True)
    shutil.copy(HERE / "seldon_mlp.py", folder)
    np.savez(folder / "weights.npz", **mlp.parameters())  # type: ignore[arg-type]
    variables = ", ".join(f'{name} = "{value}"' for name, value in ONE_THREAD.items())
    settings = ['backend = "pyclass"', "[pyclass]", 'entry = "seldon_mlp:Mlp"', f"python = {json.dumps(python)}"]
    (models / CLASS_NAME / "model.toml").write_text("\n".join([*settings, f"environment = {{ {variables} }}\n"]))
    return folder


def gateway(stack: contextlib.ExitStack, models: Path, paths: dict[str, str]) -> list[Contender]:
    """One gateway, as a contender for each name and path."""
    address, process = start(stack, gateway_command(models))
    return [Contender(name, address + path, process) for name, path in paths.items()]


def seldon(stack: contextlib.ExitStack, python: str, folder: Path, name: str, threads: int) -> Contender:
    """seldon-core-microservice with one worker."""
    port, metrics_port = free_ports(2)
    ports = [f"--http-port={port}", f"--metrics-port={metrics_port}", "--grpc-workers=0"]
    settings = ["--service-type=MODEL", "--log-level=WARNING", "--workers=1", f"--threads={threads}"]
    command = [python, str(HERE / "seldon_server.py"), "seldon_mlp.Mlp", *ports, *settings]
    process = _start(stack, command, folder, {}, f"http://127.0.0.1:{port}/health/ping")
    return Contender(name, f"http://127.0.0.1:{port}/api/v1.0/predictions", process)


def mlserver(stack: contextlib.ExitStack, python: str, model: Path, name: str, workers: int) -> Contender:
    """MLServer with so many inference processes; none: it infers in the process that has the connections."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    settings = {"name": mlp.NAME, "implementation": "mlserver_mlp.Mlp"}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    shutil.copy(HERE / "mlserver_mlp.py", folder)
    port, grpc_port, metrics_port = free_ports(3)
    environment = {
        "BENCH_MODEL": str(model),
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(port),
        "MLSERVER_GRPC_PORT": str(grpc_port),
        "MLSERVER_METRICS_PORT": str(metrics_port),
        "MLSERVER_PARALLEL_WORKERS": str(workers),
        "MLSERVER_DEBUG": "false",
        "PYTHONPATH": str(folder),
    }
    command = [python, "-m", "mlserver.cli.main", "start", str(folder)]
    process = _start(stack, command, folder, environment, f"http://127.0.0.1:{port}/v2/health/ready")
    return Contender(name, f"http://127.0.0.1:{port}/v2/models/{mlp.NAME}/infer", process)


def installed(python: str, packages: Sequence[str]) -> str:
    """The versions in a rival's environment; ends the program where one is missing."""
    script = (
        "import platform, sys\nfrom importlib.metadata import version\n"
        "print('Python ' + platform.python_version(), *(f'{n} {version(n)}' for n in sys.argv[1:]), sep=', ')"
    )
    run = subprocess.run([python, "-c", script, *packages], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{python} lacks one of {', '.join(packages)}: {run.stderr.splitlines()[-1]}")
    return run.stdout.strip()


def _start(
    stack: contextlib.ExitStack, command: list[str], folder: Path, environment: dict[str, str], ready: str
) -> "subprocess.Popen[str]":
    """A process in a group of its own, which ends with the stack; returns once it says that it is ready."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | ONE_THREAD | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    stack.callback(end, process)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(ready, timeout=5):
            return process
        time.sleep(POLL_SECONDS)
    sys.exit(f"this server did not start; run it by hand to see why:\n  cd {folder}; {' '.join(command)}")


def end(process: "subprocess.Popen[str]") -> None:
    """With all that it has started."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_ports(count: int) -> list[int]:
    """So many that nobody listens on; multi-model-server takes none above 32767."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found
