"""The clients' own environments: one a client, made once, with what requirements/clients-NAME.txt pins."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
MAKING_SECONDS = 900


@cache
def interpreter(client: str) -> str:
    """The client's Python; made at the first call, which takes half a minute."""
    done = subprocess.run(
        [ROOT / "scripts" / "client", client],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        timeout=MAKING_SECONDS,
        check=True,
    )
    return done.stdout.strip()


def run(client: str, script: Path, *arguments: str) -> Any:
    """What the script prints last, run by that Python; nothing but loopback is meant to be reached."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, "PYTHONWARNINGS": "ignore", "NO_PROXY": "*"}
    done = subprocess.run(
        [interpreter(client), script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
