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
    """A running server."""

    def __init__(self, name: str, command: Sequence[str], process: "subprocess.Popen[str]") -> None:
        self.name = name
        self.url = f"{_address(command, process)}/v1/models/{mlp.NAME}:predict"
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


def _address(command: Sequence[str], process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"on (http://\S+)", line):
            return found[1]
    sys.exit(f"this server did not start; run it by hand to see why:\n  {' '.join(command)}")


@contextlib.contextmanager
def running(*, access_log: bool) -> Iterator[list[Contender]]:
    """All of them, the gateway first, for the length of a `with` block."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        models = Path(folder) / "models"
        model = str(mlp.write_model(models))
        settings = Path(folder) / "bench.toml"
        settings.write_text(f'[gateway]\naccess_log = "{"json" if access_log else "off"}"\n')
        serve = ["-m", "gateway", "serve", str(settings), "--models", str(models), "--port", "0", "--device", "cpu"]
        arguments = {
            "gateway": serve,
            "yardstick": [str(HERE / "yardstick.py"), model],
            "plain json": [str(HERE / "plain_json.py"), model],
        }
        contenders = []
        for name, rest in arguments.items():
            command = [sys.executable, *rest]
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            stack.enter_context(process)
            stack.callback(process.terminate)
            contenders.append(Contender(name, command, process))
        yield contenders
