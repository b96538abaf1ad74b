"""Compares the gateway with the servers that its users come from, side by side: Seldon's Python wrapper and MLServer.

    python tests/bench/drop_in.py --seldon-python PATH --mlserver-python PATH

Run it in the environment of scripts/setup; the load comes from wrk (apt-get install -y wrk). Each peer has an
environment of its own, outside the repository or ignored by it; without the option for it, or the variable
BENCH_SELDON_PYTHON or BENCH_MLSERVER_PYTHON, a peer is left out. To make them, with Python 3.11:

    python -m venv DIR/seldon && DIR/seldon/bin/pip install seldon-core==1.17.1 'setuptools<81'
    python -m venv DIR/mlserver && DIR/mlserver/bin/pip install mlserver==1.7.1 onnxruntime 'uvloop<0.22'

(`scripts/client seldon` makes the first one too, and prints its interpreter.) All servers listen on loopback only.

- Seldon: one user's class (seldon_mlp.py: an MLP of 784-256-10 in numpy), one row a request, `data.ndarray`. The
  wrapper calls it in its own process; the gateway in an isolated worker, which runs the wrapper's interpreter too. For
  information, the same MLP as an ONNX model in the gateway's process, through the same protocol.
- MLServer: the MLP as ONNX, v2 requests in JSON, 1 and 32 rows. MLServer runs it in a custom runtime
  (mlserver_mlp.py), as delivered in a process of its own and, for information and as the harder aim, in the server's.

First the answers are compared. Then the servers are measured in turn, cell by cell and round by round; a ratio is
taken within a round, and the median over the rounds is shown. Only ratios mean anything on another machine.
"""

import argparse
import contextlib
import json
import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mlp
import numpy as np
from contenders import Contender
from load import measure
from msgspec import Struct
from predict import measure_all
from report import Neighbours, Samples, memory, ratio, table, versions
from rivals import CLASS_NAME, gateway, installed, mlserver, seldon, write_class

TOLERANCE = 1e-5
"""Between numpy and ONNX Runtime, or two versions of one; they add up in another order."""


class Aim(Struct, frozen=True):
    """What one contender must reach, relative to another."""

    name: str
    base: str
    rows: int
    connections: int
    requests: float
    """The least ratio of requests/s; p99 must be lower."""


class Comparison(Struct):
    """Servers that answer the same bodies."""

    title: str
    base: str
    contenders: list[Contender]
    body: Callable[[int], bytes]
    answer: Callable[[Any], Any]
    """From the document of a reply to its numbers."""
    rows: tuple[int, ...]
    connections: tuple[int, ...]
    aims: tuple[Aim, ...]


def main() -> None:
    """Measure and print."""
    options = _options()
    print("\n".join(versions()))
    if options.seldon_python:
        print(f"seldon: {installed(options.seldon_python, ('seldon-core', 'flask', 'gunicorn', 'numpy'))}")
        _compare(_with_seldon, options.seldon_python, options)
    if options.mlserver_python:
        print(f"mlserver: {installed(options.mlserver_python, ('mlserver', 'onnxruntime', 'fastapi', 'numpy'))}")
        _compare(_with_mlserver, options.mlserver_python, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("seldon", "mlserver"):
        variable = f"BENCH_{name.upper()}_PYTHON"
        parser.add_argument(f"--{name}-python", metavar="PATH", default=os.environ.get(variable, ""))
    parser.add_argument("--seconds", type=int, default=2, help="of load, each cell and server (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each cell is measured (default %(default)s)")
    options = parser.parse_args()
    if not options.seldon_python and not options.mlserver_python:
        parser.error("name the interpreter of at least one peer")
    return options


def _with_seldon(stack: contextlib.ExitStack, python: str, models: Path) -> Comparison:
    folder = write_class(models, python)
    mlp.write_model(models)
    served = {"gateway, class": CLASS_NAME, "gateway, onnx": mlp.NAME}
    contenders = [
        *gateway(stack, models, {name: f"/services/{model}/api/v1.0/predictions" for name, model in served.items()}),
        seldon(stack, python, folder, "seldon", 1),
        seldon(stack, python, folder, "seldon, 10 threads", 10),
    ]
    aims = tuple(Aim("gateway, class", name, 1, 8, 3.0) for name in ("seldon", "seldon, 10 threads"))
    return Comparison("Seldon predict", "seldon", contenders, mlp.seldon_body, _seldon_answer, (1,), (1, 8), aims)


def _with_mlserver(stack: contextlib.ExitStack, python: str, models: Path) -> Comparison:
    model = mlp.write_model(models)
    names = {"mlserver": 1, "mlserver in process": 0}
    contenders = [
        *gateway(stack, models, {"gateway": f"/v2/models/{mlp.NAME}/infer"}),
        *(mlserver(stack, python, model, name, workers) for name, workers in names.items()),
    ]
    aims = tuple(Aim("gateway", name, rows, 8, least) for name in names for rows, least in ((1, 4.0), (32, 2.0)))
    return Comparison("v2 infer", "mlserver", contenders, mlp.v2_body, _v2_answer, (1, 32), (8,), aims)


def _seldon_answer(document: Any) -> Any:
    return document["data"]["ndarray"]


def _v2_answer(document: Any) -> Any:
    return np.reshape(document["outputs"][0]["data"], document["outputs"][0]["shape"])


def _compare(
    setting: Callable[[contextlib.ExitStack, str, Path], Comparison], python: str, options: argparse.Namespace
) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        models = Path(folder) / "models"
        comparison = setting(stack, python, models)
        bodies = {rows: Path(folder) / f"{rows}.json" for rows in comparison.rows}
        for rows, path in bodies.items():
            path.write_bytes(comparison.body(rows))
        print(f"\n{comparison.title}: {_largest_difference(comparison, bodies.values())}")
        for contender in comparison.contenders:
            measure(contender, bodies[1], 8, 1)
        processes = list({contender.pid: contender for contender in comparison.contenders[::-1]}.values())[::-1]
        neighbours = Neighbours(processes)
        samples = measure_all(comparison.contenders, bodies, comparison.connections, options)
        print("\n".join((*table(samples, comparison.base), *_verdict(comparison, samples))))
        print("\n".join((*memory(processes), neighbours.told())))


def _largest_difference(comparison: Comparison, bodies: Iterable[Path]) -> str:
    """End the program unless all give the same numbers for each body."""
    largest = 0.0
    for body in bodies:
        first, *others = (_numbers(comparison, contender, body.read_bytes()) for contender in comparison.contenders)
        for contender, other in zip(comparison.contenders[1:], others, strict=True):
            if first.shape != other.shape or not np.allclose(first, other, rtol=TOLERANCE, atol=TOLERANCE):
                raise SystemExit(f"the gateway and {contender.name} differ in the numbers they give for {body.name}")
            largest = max(largest, float(np.abs(first - other).max()))
    return f"all answer alike; the largest difference is {largest:.1e}"


def _numbers(comparison: Comparison, contender: Contender, body: bytes) -> np.ndarray:
    call = urllib.request.Request(contender.url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=30) as reply:
        return np.array(comparison.answer(json.load(reply)), np.float32)


def _verdict(comparison: Comparison, samples: Samples) -> Iterable[str]:
    yield "\nAims"
    for aim in comparison.aims:
        named = samples[aim.rows, aim.connections]
        requests, p99 = (ratio(named, aim.name, aim.base, field) for field in ("requests_per_s", "p99_us"))
        reached = "reached" if requests >= aim.requests and p99 < 1 else "missed"
        yield (
            f"  {aim.rows} rows, {aim.connections} connections, {aim.name} against {aim.base}: "
            f"{requests:.1f}x, p99 {p99:.2f}x; aim {aim.requests:.0f}x: {reached}"
        )


if __name__ == "__main__":
    main()
