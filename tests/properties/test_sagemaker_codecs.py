"""SageMaker's formats: what is written reads back, the fast ways agree with the slow ones, and no bytes do harm."""

import csv
import io
import zipfile
from collections.abc import Callable
from math import nan
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.codec_strategies import (
    NUMBERS,
    accepts,
    broken,
    csv_bodies,
    jsonlines_bodies,
    libsvm_bodies,
    outputs,
    tables,
)

from adapters import _numbers
from adapters._csv import _CellReader, decode_csv, encode_csv
from adapters._jsonlines import decode_dense_lines, decode_jsonlines, encode_jsonlines
from adapters._libsvm import _Pairs, decode_libsvm
from adapters._media import negotiate, parse_media_type
from adapters._npy import decode_npy, decode_npz, encode_npy
from adapters._record_pb2 import Record
from adapters._recordio import decode_recordio, split_frames
from adapters._recordio_labels import encode_recordio, frame
from adapters._rowspec import RowSpec
from gateway.errors import GatewayError
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

LIMITS = DecodeLimits(elements=1 << 16)
OFFERS = ("application/json", "text/csv")
OPENINGS = (b"[", b'{"features":[')
quick = settings(max_examples=150, deadline=None)


def spec_of(table: Tensor, free: bool = False) -> RowSpec:
    """What a model that takes this table would declare."""
    return RowSpec(table.dtype, None if free else table.shape[1], LIMITS)


def outcome(decode: Callable[[], Tensor | None]) -> object:
    """The tensor as nested lists, or the error and its text; NaN as a word so that it equals itself."""
    try:
        tensor = decode()
    except GatewayError as error:
        message = str(error)
        assert message.isascii()
        assert message.isprintable()
        assert len(message) < 250
        return type(error), message
    return None if tensor is None else repr(tensor.tolist())


widths = st.sampled_from([None, 1, 2, 3])


@quick
@given(st.sampled_from([*NUMBERS, "object"]).flatmap(tables), st.booleans())
def test_csv_round_trip(table: Tensor, free: bool) -> None:
    """A table of any dtype is the same after CSV."""
    result = decode_csv(encode_csv([table]), spec_of(table, free))
    np.testing.assert_array_equal(table, result)
    assert table.dtype == result.dtype


@quick
@given(
    csv_bodies,
    st.sampled_from(["float32", "float64", "int64", "uint64", "int8", "bool"]),
    st.sampled_from([None, 1, 2, 3]),
)
def test_csv_fast_and_slow(body: bytes, dtype: str, width: int | None) -> None:
    """What the fast ways read, the reader of cells reads alike; what they leave to it, it refuses or reads."""
    spec = RowSpec(np.dtype(dtype), width, LIMITS)
    fast = outcome(lambda: decode_csv(body, spec))
    if isinstance(fast, str):
        assert outcome(lambda: _CellReader(spec, 0).read(body.decode("utf-8-sig"))) == fast


@quick
@given(csv_bodies | libsvm_bodies | jsonlines_bodies, widths, st.integers(0, 6))
def test_chunks(body: bytes, width: int | None, size: int) -> None:
    """A body read in small pieces gives what it gives in one."""
    spec = RowSpec(np.dtype(np.float64), width, LIMITS)
    readers: list[Callable[[], Tensor | None]] = [
        lambda: decode_csv(body, spec),
        lambda: decode_libsvm(body, spec),
        lambda: decode_dense_lines(body, spec, OPENINGS),
    ]
    whole = [outcome(reader) for reader in readers]
    with mock.patch.object(_numbers, "_CHUNK", size):
        assert whole == [outcome(reader) for reader in readers]


@quick
@given(csv_bodies, st.integers(1, 3))
def test_csv_is_what_python_reads(body: bytes, width: int) -> None:
    """A body without quotes that is read holds the numbers that Python's own reader finds."""
    try:
        result = decode_csv(body, RowSpec(np.dtype(np.float64), width, LIMITS))
    except GatewayError:
        return
    rows = [
        row
        for row in csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="\n"))
        if "".join(row).strip() or len(row) > 1
    ]
    if b'"' not in body:
        np.testing.assert_array_equal([[float(cell) if cell.strip() else nan for cell in row] for row in rows], result)


@quick
@given(csv_bodies, st.integers(0, 2))
def test_csv_labels(body: bytes, label_size: int) -> None:
    """Dropping columns is what it says."""
    with_label = outcome(lambda: decode_csv(body, RowSpec(np.dtype(np.float64), None, LIMITS), label_size))
    whole = outcome(lambda: decode_csv(body, RowSpec(np.dtype(np.float64), None, LIMITS))[:, label_size:])
    if isinstance(whole, str) and isinstance(with_label, str):
        assert whole == with_label


@quick
@given(
    libsvm_bodies, st.sampled_from(["auto", 0, 1]), st.sampled_from([None, 4]), st.sampled_from(["float64", "int32"])
)
def test_libsvm_fast_and_slow(body: bytes, first: Any, width: int | None, dtype: str) -> None:
    """Any body is rows or a refusal, and what is read in one step is what its pairs give one by one."""
    spec = RowSpec(np.dtype(dtype), width, LIMITS)
    fast = outcome(lambda: decode_libsvm(body, spec, first))
    if isinstance(fast, str):
        pairs = _Pairs(spec)
        pairs.read(body)
        assert outcome(lambda: pairs.dense(first)) == fast


@quick
@given(tables("float64"))
def test_libsvm_round_trip(table: Tensor) -> None:
    """Every value that is written at its index is there."""
    lines = ["1 " + " ".join(f"{index}:{value!r}" for index, value in enumerate(row)) for row in table.tolist()]
    np.testing.assert_array_equal(table, decode_libsvm("\n".join(lines).encode(), spec_of(table)))


@quick
@given(jsonlines_bodies)
def test_jsonlines_fast_and_slow(body: bytes) -> None:
    """A body that is read in one step gives what its lines give one by one."""
    outcome(lambda: np.array(len(decode_jsonlines(body, LIMITS).values)))
    dense = decode_dense_lines(body, RowSpec(np.dtype(np.float64), None, LIMITS), OPENINGS)
    if dense is not None:
        values = decode_jsonlines(body, LIMITS).values
        assert [value if isinstance(value, list) else value["features"] for value in values] == dense.tolist()


@quick
@given(outputs())
def test_jsonlines_round_trip(answer: dict[str, Tensor]) -> None:
    """Each line is an object of the row of every output, null for what is not finite."""
    body = encode_jsonlines(answer)
    rows = len(next(iter(answer.values())))
    assert rows == body.count(b"\n")
    values = decode_jsonlines(body, LIMITS).values if rows else []
    for row, value in enumerate(values):
        assert list(answer) == list(value)
        for name, output in answer.items():
            expected = np.where(np.isfinite(output[row]), output[row], nan)
            np.testing.assert_array_equal(expected, np.array(value[name], output.dtype).reshape(output[row].shape))


@quick
@given(outputs(), st.booleans())
def test_recordio_out(answer: dict[str, Tensor], with_ids: bool) -> None:
    """Protobuf reads what is written: every output of every row, in float32, and the row's shape."""
    rows = len(next(iter(answer.values())))
    uids = [f"é{row}" if row % 2 else None for row in range(rows)]
    payloads = [payload for [payload] in split_frames(encode_recordio(answer, uids if with_ids else None))]
    assert rows == len(payloads)
    for row, record in enumerate(map(Record.FromString, payloads)):
        assert answer.keys() == set(record.label)
        assert (uids[row] or "") * with_ids == record.uid
        for name, output in answer.items():
            tensor = record.label[name].float32_tensor
            np.testing.assert_array_equal(output[row].astype(np.float32).ravel(), np.array(tensor.values, np.float32))
            assert list(output.shape[1:] if output.ndim > 2 else ()) == list(tensor.shape)


def records(table: Tensor, kind: str = "float32_tensor", uid: bool = False) -> bytes:
    """A framed record for each row."""
    made = []
    for row in table.tolist():
        record = Record(uid="u") if uid else Record()
        getattr(record.features["values"], kind).values.extend(row)
        made.append(frame(record.SerializeToString()))
    return b"".join(made)


@quick
@given(tables("float32"), st.sampled_from(["float32_tensor", "float64_tensor"]), st.booleans())
def test_recordio_in(table: Tensor, kind: str, uid: bool) -> None:
    """Records that are alike and records with more in them give the same rows."""
    found = decode_recordio(records(table, kind, uid), {"values": spec_of(table)})
    np.testing.assert_array_equal(table, found.features["values"])
    assert (["u"] * len(table) if uid else None) == found.uids


@quick
@given(
    broken(tables("float32").map(records) | tables("float64").map(lambda table: records(table, "float64_tensor", True)))
)
def test_recordio_bytes(body: bytes) -> None:
    """Any bytes are records or a refusal."""
    for width in (None, 2):
        spec = RowSpec(np.dtype(np.float32), width, LIMITS)
        outcome(lambda spec=spec: decode_recordio(body, {"values": spec}).features["values"])  # type: ignore[misc]


@quick
@given(st.sampled_from(NUMBERS).flatmap(tables))
def test_npy_round_trip(table: Tensor) -> None:
    """An array is the same after npy, and numpy reads it too."""
    body = encode_npy(table)
    np.testing.assert_array_equal(table, decode_npy(body, LIMITS))
    np.testing.assert_array_equal(table, np.load(io.BytesIO(body)))


def zipped(table: Tensor) -> bytes:
    """An npz file that holds the table as a matrix of coordinates."""
    file = io.BytesIO()
    row, column = np.indices(table.shape)
    np.savez(file, format=np.array(b"coo"), shape=table.shape, data=table.ravel(), row=row.ravel(), col=column.ravel())
    return file.getvalue()


@quick
@given(tables("float32"))
def test_npz_round_trip(table: Tensor) -> None:
    """A matrix is the same after its coordinates."""
    np.testing.assert_array_equal(table, decode_npz(zipped(table), spec_of(table))[""])


@quick
@given(broken(tables("float32").map(encode_npy)), broken(tables("float32").map(zipped)))
def test_npy_bytes(npy: bytes, npz: bytes) -> None:
    """Any bytes are an array, arrays or a refusal."""
    outcome(lambda: decode_npy(npy, LIMITS))
    outcome(lambda: np.array(len(decode_npz(npz, RowSpec(np.dtype(np.float32), 2, LIMITS)))))


_members = st.sampled_from(["data", "indices", "indptr", "offsets", "row", "col", "coords"])


@quick
@given(
    st.dictionaries(_members, st.lists(st.integers(-1, 4), max_size=6)),
    st.sampled_from(["csr", "csc", "coo", "bsr", "dia"]),
)
def test_sparse_members(members: dict[str, list[int]], layout: str) -> None:
    """Members of any integers are a matrix or a refusal, whatever the layout."""
    file = io.BytesIO()
    arrays = {name: np.array(values, np.int64) for name, values in members.items()}
    parts = {"format": np.array(layout), "shape": np.array([3, 2]), "data": np.int8([1, 2])} | arrays
    np.savez(file, **parts)  # type: ignore[arg-type]
    outcome(lambda: decode_npz(file.getvalue(), RowSpec(np.dtype(np.int8), 2, LIMITS)).get(""))


@quick
@given(accepts)
def test_any_header(header: str) -> None:
    """Any Accept header is answered by an offer or refused, and so is any Content-Type."""
    outcome(lambda: np.array(OFFERS.index(negotiate(header, OFFERS).name)))
    outcome(lambda: np.array(parse_media_type(header).name))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_lying_zip(compression: int) -> None:
    """A member that is longer than the directory says is not read beyond it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("a.npy", encode_npy(np.zeros(4096, np.int8)))
    body = file.getvalue()
    size = (128 + 4096).to_bytes(4, "little")
    assert size in body
    outcome(lambda: decode_npz(body.replace(size, (128).to_bytes(4, "little")), RowSpec(np.dtype(np.int8)))["a"])
