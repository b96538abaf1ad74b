"""How fast SageMaker's formats are read and written, against the obvious library way, in one run.

    python tests/bench/formats.py [rows] [columns]

Prints microseconds and ratios; the exit status is 1 if a ratio that is promised is not reached.
"""

import csv
import io
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from adapters._csv import decode_csv, encode_csv
from adapters._jsonlines import decode_dense_lines, encode_jsonlines
from adapters._libsvm import decode_libsvm
from adapters._npy import decode_npy, encode_npy
from adapters._record_pb2 import Record
from adapters._recordio import decode_recordio
from adapters._recordio_labels import encode_recordio, frame
from adapters._rowspec import RowSpec
from gateway.types import Tensor


class Race(NamedTuple):
    """One thing done in two ways."""

    name: str
    rival: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    promised: float = 0.0


def microseconds(work: Callable[[], Any]) -> float:
    """The best of several runs, each of about 20 ms."""
    started = time.perf_counter()
    work()
    times = max(1, int(0.02 / (time.perf_counter() - started)))
    best = float("inf")
    for _ in range(7):
        started = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, (time.perf_counter() - started) / times)
    return best * 1e6


def write_csv(table: Tensor) -> str:
    """With csv.writer."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(table.tolist())
    return file.getvalue()


def read_csv(body: bytes) -> Tensor:
    """With csv.reader and float."""
    return np.array([list(map(float, row)) for row in csv.reader(io.StringIO(body.decode()))], np.float32)


def read_lines(body: bytes) -> Tensor:
    """With json, line by line."""
    return np.array([json.loads(line)["features"] for line in body.splitlines()], np.float32)


def write_lines(table: Tensor) -> str:
    """With json, row by row."""
    return "".join(json.dumps({"score": row}) + "\n" for row in table.tolist())


def read_records(body: bytes) -> Tensor:
    """With protobuf, record by record."""
    rows, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at + 4 : at + 8], "little")
        record = Record.FromString(body[at + 8 : at + 8 + size])
        rows.append(np.array(record.features["values"].float32_tensor.values, np.float32))
        at += 8 + size + -size % 4
    return np.stack(rows)


def write_records(table: Tensor, field: str) -> bytes:
    """With protobuf, row by row."""
    frames = []
    for row in table.tolist():
        record = Record()
        getattr(record, field)["score" if field == "label" else "values"].float32_tensor.values.extend(row)
        frames.append(frame(record.SerializeToString()))
    return b"".join(frames)


def read_libsvm(body: bytes, columns: int) -> Tensor:
    """With split and float."""
    lines = body.decode().splitlines()
    table = np.zeros((len(lines), columns), np.float32)
    for row, line in enumerate(lines):
        for pair in line.split()[1:]:
            index, value = pair.split(":")
            table[row, int(index)] = float(value)
    return table


def write_npy(table: Tensor) -> bytes:
    """With numpy.save."""
    file = io.BytesIO()
    np.save(file, table)
    return file.getvalue()


def races(rows: int, columns: int) -> list[Race]:
    """The table of what is measured."""
    table = np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)
    holes = np.where(np.random.default_rng(1).random(table.shape) < 0.1, np.float32(np.nan), table)
    spec = RowSpec(np.dtype(np.float32), columns)
    specs = {"values": spec}
    comma, gaps = encode_csv([table]), encode_csv([holes]).replace(b"nan", b"")
    lines = encode_jsonlines({"features": table})
    openings = (b'{"features":[',)
    records, npy = write_records(table, "features"), encode_npy(table)
    named = b"".join(frame(_with_uid(row)) for row in table.tolist())
    pairs = "".join("1 " + " ".join(f"{i}:{v!r}" for i, v in enumerate(row)) + "\n" for row in table.tolist()).encode()
    assert np.array_equal(decode_csv(comma, spec), table)
    assert np.array_equal(decode_csv(gaps, spec), holes, equal_nan=True)
    assert write_records(table, "label") == encode_recordio({"score": table})
    return [
        Race(
            "csv in",
            "np.genfromtxt",
            lambda: decode_csv(comma, spec),
            lambda: np.genfromtxt(io.BytesIO(comma), np.float32, delimiter=","),
            5,
        ),
        Race("csv in", "csv.reader", lambda: decode_csv(comma, spec), lambda: read_csv(comma)),
        Race(
            "csv in, 10 % empty",
            "np.genfromtxt",
            lambda: decode_csv(gaps, spec),
            lambda: np.genfromtxt(io.BytesIO(gaps), np.float32, delimiter=","),
        ),
        Race("csv out", "csv.writer", lambda: encode_csv([table]), lambda: write_csv(table), 5),
        Race("jsonlines in", "json", lambda: decode_dense_lines(lines, spec, openings), lambda: read_lines(lines)),
        Race("jsonlines out", "json", lambda: encode_jsonlines({"score": table}), lambda: write_lines(table)),
        Race(
            "recordio in, alike", "protobuf", lambda: decode_recordio(records, specs), lambda: read_records(records), 5
        ),
        Race("recordio in, with uid", "protobuf", lambda: decode_recordio(named, specs), lambda: read_records(named)),
        Race(
            "recordio out", "protobuf", lambda: encode_recordio({"score": table}), lambda: write_records(table, "label")
        ),
        Race("libsvm in", "split, float", lambda: decode_libsvm(pairs, spec, 0), lambda: read_libsvm(pairs, columns)),
        Race("npy in", "np.load", lambda: decode_npy(npy, spec.limits), lambda: np.load(io.BytesIO(npy))),
        Race("npy out", "np.save", lambda: encode_npy(table), lambda: write_npy(table)),
    ]


def _with_uid(row: list[float]) -> bytes:
    record = Record(uid="u")
    record.features["values"].float32_tensor.values.extend(row)
    return record.SerializeToString()


def main(rows: int = 1000, columns: int = 30) -> int:
    """Run all races and print them."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "protobuf", "orjson", "pysimdjson"))
    print(f"{rows} x {columns} float32; Python {platform.python_version()}, {libraries}")
    print(f"{'':24}{'us':>10}  {'against':16}{'us':>10}{'ratio':>8}")
    missed = 0
    for race in races(rows, columns):
        ours, theirs = microseconds(race.ours), microseconds(race.theirs)
        verdict = f"  promised {race.promised:.0f}" if race.promised else ""
        print(f"{race.name:24}{ours:10.1f}  {race.rival:16}{theirs:10.1f}{theirs / ours:8.1f}{verdict}")
        missed += theirs / ours < race.promised
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
