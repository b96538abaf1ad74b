"""The benchmark's figures as text."""

import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

import psutil
from contenders import Contender
from load import Sample, find_wrk
from msgspec import Struct

PACKAGES = ("uvicorn", "starlette", "httptools", "uvloop", "pysimdjson", "orjson", "msgspec", "numpy")
RUNTIMES = ("onnxruntime-gpu", "onnxruntime")

AIMS = {1: 1.3, 32: 1.0}
"""Rows a request to the least requests/s against the yardstick."""

QUIET_CORES = 0.2
"""What others may use before requests/s say little."""

Cell = tuple[int, int]
"""Rows a request, connections."""
Samples = dict[Cell, dict[str, list[Sample]]]
"""Per cell and server, one sample a round."""


class _Column(Struct, frozen=True):
    title: str
    field: str
    scale: float
    form: str


_COLUMNS = (
    _Column("requests/s", "requests_per_s", 1.0, ",.0f"),
    _Column("p50 ms", "p50_us", 1e-3, ".2f"),
    _Column("p99 ms", "p99_us", 1e-3, ".2f"),
    _Column("CPU us/req", "cpu_us", 1.0, ",.0f"),
)


def versions() -> Iterable[str]:
    """What ran, and on what."""
    yield f"{platform.platform()}, {os.cpu_count()} cores, {find_wrk()}"
    runtime = next(name for name in RUNTIMES if _installed(name))
    named = ", ".join(f"{name} {version(name)}" for name in (*PACKAGES, runtime))
    yield f"{platform.python_implementation()} {platform.python_version()}, {named}"


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def table(samples: Samples, base: str = "yardstick") -> Iterable[str]:
    """One line a cell and server."""
    width = max(len(name) for named in samples.values() for name in named)
    yield f"\nMedians, and in brackets the ratio to {base}"
    yield f"{'rows':>4} {'conn.':>5}  {'server':<{width}}" + "".join(f"{column.title:>18}" for column in _COLUMNS)
    for (rows, connections), named in samples.items():
        for name in named:
            figures = "".join(f"{_figure(named, name, base, column):>18}" for column in _COLUMNS)
            yield f"{rows:>4} {connections:>5}  {name:<{width}}{figures}"


def _figure(named: dict[str, list[Sample]], name: str, base: str, column: _Column) -> str:
    median = statistics.median(getattr(sample, column.field) for sample in named[name]) * column.scale
    return f"{median:{column.form}} ({ratio(named, name, base, column.field):.2f})"


def ratio(named: dict[str, list[Sample]], name: str, base: str, field: str) -> float:
    """The median over the rounds of a figure relative to the base's in the same round."""
    pairs = zip(named[name], named[base], strict=True)
    ratios = [float(getattr(own, field) / getattr(other, field)) for own, other in pairs]
    return statistics.median(ratios)


def verdict(samples: Samples) -> Iterable[str]:
    """How the gateway stands to the aims."""
    yield "\nRequests/s of the gateway against the yardstick"
    for rows, aim in AIMS.items():
        cells = [named for cell, named in samples.items() if cell[0] == rows]
        ratios = [ratio(named, "gateway", "yardstick", "requests_per_s") for named in cells]
        shown = ", ".join(f"{one:.2f}" for one in ratios)
        yield f"  {rows:>2} rows: {shown}; aim {aim:.1f}: {'reached' if min(ratios) >= aim else 'missed'}"


class Neighbours:
    """What everybody else on the machine has computed since this was made."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self._contenders = contenders
        self._started = time.monotonic()
        self._before = self._foreign_seconds()

    def _foreign_seconds(self) -> float:
        machine = psutil.cpu_times()
        own = psutil.Process().cpu_times()
        ours = own.user + own.system + own.children_user + own.children_system
        ours += sum(contender.cpu_seconds() for contender in self._contenders)
        return float(sum(machine) - machine.idle - machine.iowait - ours)

    def told(self) -> str:
        """A line for the report."""
        cores = (self._foreign_seconds() - self._before) / (time.monotonic() - self._started)
        line = f"\nOther processes kept {max(cores, 0.0):.2f} of {os.cpu_count()} cores busy meanwhile"
        if cores < QUIET_CORES:
            return line
        return f"{line}: requests/s and latencies are theirs as much as ours; of the figures, trust CPU only"


def memory(contenders: Iterable[Contender]) -> Iterable[str]:
    """What each process holds after the load."""
    yield "\nMemory after the load, MiB"
    for contender in contenders:
        resident, proportional = contender.memory_mib()
        yield f"  {contender.name:<10}  RSS {resident:.0f}, PSS {proportional:.0f}"
