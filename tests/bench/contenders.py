"""The servers under comparison, each a process of its own on a free port of loopback."""

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import mlp
import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Contender:
    """A running server, or one model of it."""

    def __init__(self, name: str, url: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self.url = url
        self.pid = process.pid
        self._process = psutil.Process(process.pid)

    def cpu_seconds(self) -> float:
        """Time on a core so far, user and system, children included."""
        times = [one.cpu_times() for one in self._tree()]
        return float(sum(one.user + one.system for one in times))

    def memory_mib(self) -> tuple[float, float]:
        """Resident, and proportional: what it shares with other processes is divided among them."""
        infos = [one.memory_full_info() for one in self._tree()]
        return sum(info.rss for info in infos) / 2**20, sum(info.pss for info in infos) / 2**20

    def _tree(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]


def start(stack: contextlib.ExitStack, command: Sequence[str]) -> tuple[str, "subprocess.Popen[str]"]:
    """A process that prints its address, and that address; the process ends with the stack."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    stack.enter_context(process)
    stack.callback(process.terminate)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"on (http://\S+)", line):
            return found[1], process
    sys.exit(f"this server did not start; run it by hand to see why:\n  {' '.join(command)}")


def gateway_command(models: Path, *, access_log: bool = True) -> list[str]:
    """The gateway as it is delivered, on a free port; its settings are written beside the models."""
    settings = models.parent / "bench.toml"
    settings.write_text(f'[gateway]\naccess_log = "{"json" if access_log else "off"}"\n')
    serve = ["-m", "gateway", "serve", str(settings), "--models", str(models), "--port", "0", "--device", "cpu"]
    return [sys.executable, *serve]


@contextlib.contextmanager
def running(*, access_log: bool) -> Iterator[list[Contender]]:
    """All of them, the gateway first, for the length of a `with` block."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        models = Path(folder) / "models"
        model = str(mlp.write_model(models))
        commands = {
            "gateway": gateway_command(models, access_log=access_log),
            "yardstick": [sys.executable, str(HERE / "yardstick.py"), model],
            "plain json": [sys.executable, str(HERE / "plain_json.py"), model],
        }
        contenders = []
        for name, command in commands.items():
            address, process = start(stack, command)
            contenders.append(Contender(name, f"{address}/v1/models/{mlp.NAME}:predict", process))
        yield contenders
