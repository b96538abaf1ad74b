"""What a user's class costs behind many processes: memory of all of them, and the time of a call to it.

`python tests/bench/pools.py`: for one, two and four processes, PSS in MiB, and the median of calls one after another.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from live import LiveGateway, gateway

CALLS = 3000
CLASS = """
class own:
    def predict(self, X, names=None, meta=None):
        return X
"""


def pss_mib(live: LiveGateway) -> float:
    """Of the gateway with all its processes; what several share counts once."""
    leading = psutil.Process(live.process.pid)
    everybody = [leading, *leading.children(recursive=True)]
    return sum(one.memory_full_info().pss for one in everybody) / (1 << 20)


def call_us(live: LiveGateway) -> float:
    """The median of calls of one client, one after another."""
    taken = []
    with httpx.Client() as client:
        for _ in range(CALLS):
            begun = time.perf_counter()
            client.post(f"{live.url}/v1/models/own:predict", json={"instances": [1.0]}).raise_for_status()
            taken.append(time.perf_counter() - begun)
    return median(taken[CALLS // 10 :]) * 1e6


def main() -> None:
    """Print a line for each number of processes."""
    with tempfile.TemporaryDirectory() as name:
        version = Path(name) / "own" / "1"
        version.mkdir(parents=True)
        (version / "own.py").write_text(CLASS)
        (version.parent / "model.toml").write_text('backend = "pyclass"\n[pyclass]\nentry = "own:own"\n')
        for workers in (1, 2, 4):
            with gateway("--models", name, "--workers", str(workers)) as live:
                idle = pss_mib(live)
                print(f"workers {workers}: {idle:.0f} MiB PSS, {call_us(live):.0f} us a call", flush=True)


if __name__ == "__main__":
    main()
