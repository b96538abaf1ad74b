"""Compares the gateway with eight other servers, each in an environment of its own, on the same ONNX model.

    python tests/bench/peers.py [NAME ...] [--write]      some 20 minutes for all; NAME as in the table, e.g. KServe

Run it in the environment of scripts/setup; the load comes from wrk (apt-get install -y wrk). Environments are made
in .venv-peers on first use (3 GB, a few minutes, needs network); TorchServe and multi-model-server need Java
(apt-get install -y default-jre-headless). A peer that cannot be installed or started is told of and left out.

The gateway runs with everything on that it has by default: access log, metrics, limits, batching; and the service
needs a key, which every request brings. Each peer is measured against it in turn, A-B-B-A, cell by cell; a ratio is
taken within a round, and the median over the rounds is shown. First the answers are compared. `--write` puts the
table into docs/performance.md. Only ratios mean anything on another machine.
"""

import argparse
import contextlib
import datetime
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import mlp
from contenders import ROOT
from load import Sample, find_wrk
from msgspec import Struct
from peer_environments import gateway, installed, start
from peer_load import check_alike, measure
from peer_table import PEERS, Peer
from report import ratio

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- peers: written by tests/bench/peers.py -->", "<!-- end of peers -->"
CELLS = ((1, 1), (1, 8), (1, 32), (32, 8))
"""Rows a request, connections."""
AIMS = {(1, 8): None, (32, 8): 2.0}
"""The least ratio of requests/s; None for the peer's own."""
CPU_AIMS = {(1, 8): 4.0, (32, 8): 2.0}

OURS, THEIRS = "gateway", "peer"


class Row(Struct):
    """One peer's figures."""

    peer: Peer
    version: str
    ratios: dict[tuple[int, int], tuple[float, float, float, float]]
    """Per cell: the gateway's requests/s, p50, p99 and CPU a request, relative to the peer's."""
    memory: tuple[float, float]
    """MiB, proportional: the gateway's and the peer's."""
    start: tuple[float, float]
    """Seconds."""


def main() -> None:
    """Measure, print, and write."""
    options = _options()
    chosen = [peer for peer in PEERS if not options.names or peer.name.lower() in options.names]
    print(f"{os.cpu_count()} cores, {find_wrk()}")
    rows = []
    for peer in chosen:
        row = _compared(peer, options)
        if row is not None:
            rows.append(row)
            print("\n".join(_told(row)), flush=True)
    table = "\n".join(_table(rows))
    print(f"\n{table}")
    if options.write:
        _write(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", type=str.lower, help=", ".join(peer.name for peer in PEERS))
    parser.add_argument("--seconds", type=int, default=2, help="of load, each cell and server (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each cell is measured (default %(default)s)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    return parser.parse_args()


def _compared(peer: Peer, options: argparse.Namespace) -> Row | None:
    version = installed(peer)
    if version is None:
        return None
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        models = Path(folder) / "models"
        model = mlp.write_model(models)
        ours = gateway(stack, models, peer.ours.path)
        theirs = start(stack, peer, model, Path(folder))
        if theirs is None:
            return None
        both = {OURS: (ours, peer.ours), THEIRS: (theirs, peer.speech)}
        difference = check_alike(peer, ours, theirs)
        print(f"\n{peer.name} {version}: answers differ by at most {difference:.0e}", flush=True)
        for contender, speech in both.values():
            measure(contender, speech, 1, 8, 1)
        samples: dict[tuple[int, int], dict[str, list[Sample]]] = {cell: {OURS: [], THEIRS: []} for cell in CELLS}
        for number in range(options.rounds):
            for cell in CELLS:
                for name in (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS):
                    contender, speech = both[name]
                    samples[cell][name].append(measure(contender, speech, *cell, options.seconds))
        return Row(
            peer,
            version,
            {cell: _ratios(named) for cell, named in samples.items()},
            (ours.memory_mib()[1], theirs.memory_mib()[1]),
            (ours.start_seconds, theirs.start_seconds),
        )


def _ratios(named: dict[str, list[Sample]]) -> tuple[float, float, float, float]:
    fields = ("requests_per_s", "p50_us", "p99_us", "cpu_us")
    requests, p50, p99, cpu = (ratio(named, OURS, THEIRS, field) for field in fields)
    return requests, p50, p99, cpu


def _told(row: Row) -> Iterator[str]:
    for (rows, connections), (requests, p50, p99, cpu) in row.ratios.items():
        aim = AIMS.get((rows, connections), 0.0) or (row.peer.least if (rows, connections) in AIMS else 0.0)
        verdict = f"; aim {aim:g}x: {'reached' if requests >= aim else 'missed'}" if aim else ""
        yield (
            f"  {rows:>2} rows, {connections:>2} connections: requests/s {requests:.1f}x, p50 {p50:.2f}x, "
            f"p99 {p99:.2f}x, CPU a request 1/{1 / cpu:.1f}{verdict}"
        )
    (ours, theirs), (soon, late) = row.memory, row.start
    yield f"  memory (PSS, MiB) {ours:.0f} against {theirs:.0f}; start {soon:.1f} s against {late:.1f} s"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    heads = (
        "peer", "requests/s, 1 row, 1 / 8 / 32 connections", "32 rows, 8 connections", "p99, 1 row, 8 connections",
        "CPU a request, 1 row / 32 rows", "memory", "start",
    )  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        one = " / ".join(f"{row.ratios[1, count][0]:.1f}" for count in (1, 8, 32))
        cpu = " / ".join(f"1/{1 / row.ratios[cell][3]:.1f}" for cell in ((1, 8), (32, 8)))
        yield (
            f"| {row.peer.name} {row.version} | {one} | {row.ratios[32, 8][0]:.1f} | {row.ratios[1, 8][2]:.2f} | {cpu} "
            f"| {row.memory[0] / row.memory[1]:.2f} | {row.start[0] / row.start[1]:.2f} |"
        )


def _write(table: str) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    made = f"Ratios of the gateway to the peer, measured on {datetime.date.today()} at {commit.stdout.strip()}."
    text = PAGE.read_text("utf-8")
    changed, count = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", f"{BEGIN}\n\n{made}\n\n{table}\n\n{END}", text, flags=re.DOTALL
    )
    if count != 1:
        sys.exit(f"{PAGE.name} has no place for the table")
    PAGE.write_text(changed, "utf-8")


if __name__ == "__main__":
    main()
