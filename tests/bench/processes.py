"""What a front process more takes: `python tests/bench/processes.py` prints memory (PSS) and start times."""

import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from live import LiveGateway
from onnx_models import identity, write

SETTLE_SECONDS = 2.0


def pss_mb(pid: int) -> float:
    """The memory of a process and its children, shared pages counted in parts."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(one.memory_full_info().pss for one in family) / 1e6


def measure(models: Path, workers: int) -> tuple[float, float]:
    """Seconds from the start to the banner, and the memory after a while."""
    started = monotonic()
    live = LiveGateway("--models", str(models), "--workers", str(workers))
    try:
        seconds = monotonic() - started
        sleep(SETTLE_SECONDS)
        return seconds, pss_mb(live.process.pid)
    finally:
        live.stop()


def slowest_imports() -> list[str]:
    """What the program spends its start on."""
    command = [sys.executable, "-X", "importtime", "-c", "import gateway.cli"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    rows = [line.removeprefix("import time:").split("|") for line in said.splitlines()[1:]]
    own = sorted(((int(row[1]), row[2].strip()) for row in rows if row[1].strip().isdigit()), reverse=True)
    return [f"{us / 1000:.0f} ms {name}" for us, name in own[:12]]


def main() -> None:
    """Print a row for each number of processes."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        write(identity(), models / "small" / "1")
        print("workers  start s  memory MB  for one more")
        before: tuple[int, float] | None = None
        for workers in (1, 2, 4):
            seconds, memory = measure(models, workers)
            more = f"{(memory - before[1]) / (workers - before[0]):.0f}" if before else "-"
            print(f"{workers:>7}  {seconds:>7.2f}  {memory:>9.0f}  {more:>12}")
            before = (workers, memory)
    print("\nimports, with what each brings:\n  " + "\n  ".join(slowest_imports()))


if __name__ == "__main__":
    main()
