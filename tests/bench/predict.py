"""Compares the gateway with a yardstick, side by side: how many predicts a second, how fast, at what cost.

    python tests/bench/predict.py             some four minutes
    python tests/bench/predict.py --quick     half a minute, to see whether a change helped at all

Run it in the environment of scripts/setup; the load comes from wrk (apt-get install -y wrk).

Three servers, each one process, answer the same requests with the same MLP (784-256-10) on one thread:

- the gateway, as `tensorgate serve --models DIR` starts it, its access log on (it goes to the null device);
- the yardstick (yardstick.py): Starlette, pysimdjson and ONNX Runtime with none of a product's features;
- for information, plain json (plain_json.py): uvicorn and the standard library's json.

First all three must give the same numbers for the same body. Then they are measured in turn, cell by cell and round
by round, so that whatever else the machine does hits all of them. A ratio is taken within a round; the median over
the rounds is shown. Only ratios mean anything on another machine. The aims: against the yardstick, at least 1.0 times
the requests/s at 32 rows a request and 1.3 times at one row.
"""

import argparse
import json
import tempfile
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

import mlp
import numpy as np
from contenders import Contender, running
from load import measure
from report import Neighbours, Samples, memory, table, verdict, versions

ROWS = (1, 32)
CONNECTIONS = (1, 8, 32)


def main() -> None:
    """Measure and print."""
    options = _options()
    print("\n".join(versions()))
    with tempfile.TemporaryDirectory() as folder, running(access_log=options.access_log) as contenders:
        bodies = {rows: Path(folder) / f"{rows}.json" for rows in ROWS}
        for rows, path in bodies.items():
            path.write_bytes(mlp.predict_body(rows))
        check_same_numbers(contenders, bodies.values())
        for contender in contenders:
            measure(contender, bodies[1], 8, 1)
        neighbours = Neighbours(contenders)
        samples = measure_all(contenders, bodies, options.connections, options)
        print("\n".join((*table(samples), *verdict(samples), *memory(contenders), neighbours.told())))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=2, help="of load, each cell and server (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each cell is measured (default %(default)s)")
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS, help="default: 1 8 32")
    parser.add_argument("--quick", action="store_true", help="one second, three rounds, 8 connections")
    parser.add_argument("--no-access-log", dest="access_log", action="store_false", help="for comparison")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.connections = 1, 3, (8,)
    return options


def check_same_numbers(contenders: Sequence[Contender], bodies: Iterable[Path]) -> None:
    """End the program unless all give the same float32 values for each body."""
    for body in bodies:
        first, *others = (_predictions(contender, body.read_bytes()) for contender in contenders)
        for contender, other in zip(contenders[1:], others, strict=True):
            if not np.array_equal(first, other):
                raise SystemExit(f"the gateway and {contender.name} differ in the numbers they give for {body.name}")


def _predictions(contender: Contender, body: bytes) -> np.ndarray:
    call = urllib.request.Request(contender.url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=30) as reply:
        return np.array(json.load(reply)["predictions"], np.float32)


def measure_all(
    contenders: Sequence[Contender], bodies: dict[int, Path], connections: Iterable[int], options: argparse.Namespace
) -> Samples:
    """Every cell of every server in every round."""
    cells = [(rows, count) for rows in bodies for count in connections]
    samples: Samples = {cell: {contender.name: [] for contender in contenders} for cell in cells}
    for number in range(options.rounds):
        # Whoever goes first in one round goes last in the next...
        order = contenders if number % 2 == 0 else contenders[::-1]
        for cell in cells:
            for contender in order:
                sample = measure(contender, bodies[cell[0]], cell[1], options.seconds)
                samples[cell][contender.name].append(sample)
    return samples


if __name__ == "__main__":
    main()
