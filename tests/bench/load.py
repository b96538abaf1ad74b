"""Load by wrk: one closed loop a connection, for so many seconds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from contenders import Contender
from msgspec import Struct

SCRIPT = Path(__file__).resolve().parent / "predict.lua"


class Sample(Struct, frozen=True):
    """What one stretch of load measured."""

    requests_per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float
    """The server's CPU time a request."""


def find_wrk() -> str:
    """Its path and version; ends the program where there is none."""
    path = shutil.which("wrk")
    if path is None:
        sys.exit("the load generator wrk is missing; on Debian and Ubuntu: apt-get install -y wrk")
    return subprocess.run([path, "-v"], capture_output=True, text=True).stdout.splitlines()[0].partition(" [")[0]


def measure(contender: Contender, body: Path, connections: int, seconds: int, key: str = "") -> Sample:
    """Load one server, with an application key where it needs one; every answer must be a 200."""
    before = contender.cpu_seconds()
    run = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(SCRIPT), contender.url],
        env=os.environ | {"BENCH_BODY": str(body), "BENCH_KEY": key},
        capture_output=True,
        text=True,
        check=True,
    )
    cpu_seconds = contender.cpu_seconds() - before
    figures = json.loads(run.stdout.splitlines()[-1])
    if figures["failed"] or not figures["requests"]:
        sys.exit(f"{contender.name}: not every request was answered with 200:\n{run.stdout}")
    requests = figures["requests"]
    return Sample(requests / figures["us"] * 1e6, figures["p50_us"], figures["p99_us"], cpu_seconds / requests * 1e6)
