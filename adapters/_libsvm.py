"""LIBSVM's sparse text: `[label] index:value ...`, a row a line.

A blank line is a row of zeros, `#` starts a comment, a line of only a comment is none. An index that is left out is 0.
Source: sagemaker-xgboost-container (encoder.py, serve_utils.py); LIBSVM's README.
"""

import io
from array import array
from typing import Any, Literal

import numpy as np

from adapters._cast import cast
from adapters._cells import cell_type, is_number
from adapters._excerpt import excerpt
from adapters._numbers import chunks, count_lines, parse_flat
from adapters._rowspec import RowSpec
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.types import Tensor

FirstIndex = Literal["auto", 0, 1]
"""The index of the first column. "auto": 1 if no row of the payload uses 0, which is what XGBoost's container does."""

_COLON, _END = b",-7000000000000000000,", b",-8000000000000000000,"
"""Numbers that int64 and float64 hold alike."""
_SLOW_COST = 8
"""Values that a row or a pair counts as which is read by itself."""
# PERF: 0.8 us each: without it a body of 64 MiB would hold a thread for 15 seconds, now it is 2.
_ALWAYS = 65_536
_PAIR = 3
"""Numbers that make a pair: the index, the colon, the value."""


def decode_libsvm(body: bytes, spec: RowSpec, first_index: FirstIndex = "auto") -> Tensor:
    """The body's rows as `[rows, width]`; labels are dropped.

    Raises MalformedBody, InvalidTensor and BodyTooLarge, whose texts count lines from 1.
    """
    if spec.dtype.kind == "O":
        raise InvalidTensor("the body holds numbers, the model takes text")
    dense = _decode_plain(body, spec, first_index)
    if dense is not None:
        return dense
    pairs = _Pairs(spec)
    pairs.read(body)
    if not pairs.indices:
        raise MalformedBody("the body has no index:value pairs")
    return pairs.dense(first_index)


def _decode_plain(body: bytes, spec: RowSpec, first_index: FirstIndex) -> Tensor | None:
    """A body of plain numbers, single spaces and rising indices, in one step; None for any other, right or wrong.

    PERF: seven times as fast as pair by pair.
    """
    if spec.dtype.kind not in "fi" or spec.width is None or any(sign in body for sign in (b",", b"[", b"]")):
        return None
    found = []
    for lines in chunks(body.rstrip()):
        pairs = _parse_chunk(lines, spec.width, spec.dtype)
        if pairs is None:
            return None
        found.append(pairs)
        spec.check_budget(sum(len(counts) for counts, _, _ in found), spec.width)
    counts, index, value = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if not len(index):
        return None
    columns = index - (int(index.min() >= 1) if first_index == "auto" else first_index)
    cells = np.repeat(np.arange(len(counts)), counts) * spec.width + columns
    if columns.min() < 0 or columns.max() >= spec.width or (np.diff(cells) <= 0).any():
        return None
    dense = np.zeros(len(counts) * spec.width, spec.dtype)
    try:
        dense[cells] = cast(value, spec.dtype)
    except InvalidTensor:
        return None
    return dense.reshape(len(counts), spec.width)


def _parse_chunk(lines: bytes, width: int, dtype: np.dtype) -> tuple[Tensor, Tensor, Tensor] | None:
    """How many pairs each row has, and all their indices and values.

    Two numbers stand for the colons and for the ends of rows; that none of them is the client's own is checked.
    """
    rows = count_lines(lines)
    if lines.count(b":") > rows * width:
        return None
    numbers = parse_flat(lines.replace(b" ", b",").replace(b":", _COLON).replace(b"\n", _END) + _END[:-1], dtype)
    if numbers is None:
        return None
    ends = np.flatnonzero(numbers == int(_END[1:-1]))
    lengths = np.diff(ends, prepend=-1) - 1
    if len(ends) != rows or (lengths % _PAIR == _PAIR - 1).any():
        return None
    kept = np.ones(len(numbers), bool)
    kept[ends] = False
    kept[(ends - lengths)[lengths % _PAIR == 1]] = False  # the labels
    index, colon, value = numbers[kept].reshape(-1, _PAIR).T
    colons = int(_COLON[1:-1])
    if not (colon == colons).all() or np.count_nonzero(numbers == colons) != len(colon):
        return None
    with np.errstate(invalid="ignore"):  # an index of 1e99, or none at all
        whole = index.astype(np.int64)
    return (lengths // _PAIR, whole, value) if (whole == index).all() else None


_parse_index, _ = cell_type(np.dtype(np.int64))


class _Pairs:
    """The pairs of all rows, in flat arrays: a body may hold millions."""

    def __init__(self, spec: RowSpec) -> None:
        self.spec = spec
        self.lines = array("q")
        """The number of each row's line."""
        self.counts = array("q")
        self.indices = array("q")
        self.values: list[Any] | array[float] = array("d") if spec.dtype.kind == "f" else []
        self.parse, self.noun = cell_type(spec.dtype)

    def read(self, body: bytes) -> None:
        """Take all rows of the body."""
        body = body.removeprefix(b"\xef\xbb\xbf").rstrip()
        for line, data in enumerate(io.BytesIO(body), 1):
            self._check_cost(line)
            text, comment, _ = data.partition(b"#")
            text = text.strip()
            if not text and (comment or not self.lines):
                continue  # a line of comment, or blank ones before the first row
            try:
                self._add(text.decode("ascii"), line)
            except UnicodeDecodeError:
                raise MalformedBody(f"line {line}: {excerpt(text)} is not ASCII") from None

    def _add(self, text: str, line: int) -> None:
        count = text.count(":")
        if self.spec.width is not None and count > self.spec.width:
            raise InvalidTensor(f"line {line}: {count} values, expected at most {self.spec.width}")
        self.lines.append(line)
        self.spec.check_budget(len(self.lines), self.spec.width or 1)
        label, *rest = text.split() or [""]
        if ":" in label:
            rest = [label, *rest]
        elif label and not is_number(label):
            raise MalformedBody(f"line {line}: the label {excerpt(label)} is not a number")
        indices = [self._pair(token, line) for token in rest]
        if len(set(indices)) < len(indices):
            raise InvalidTensor(f"line {line}: an index occurs twice")
        self.indices.extend(indices)
        self.counts.append(len(indices))

    def _check_cost(self, line: int) -> None:
        most = max(self.spec.limits.elements // _SLOW_COST, _ALWAYS)
        if line + len(self.indices) > most:
            raise BodyTooLarge(
                f"the body holds more than {most} lines and pairs; a larger one must be plain: one space between "
                "pairs, indices that rise in each row, no comments"
            )

    def _pair(self, token: str, line: int) -> Any:
        """The index of a pair, whose value is taken."""
        text, _, value = token.partition(":")
        try:
            index = _parse_index(text) if value else -1
        except ValueError:
            index = -1
        if index < 0:
            raise MalformedBody(f"line {line}: {excerpt(token)} is not index:value")
        try:
            self.values.append(self.parse(value))
        except ValueError:
            raise MalformedBody(f"line {line}: {excerpt(value)} is not {self.noun}") from None
        return index

    def dense(self, first_index: FirstIndex) -> Tensor:
        """All rows, with zeros where no value was given."""
        indices = np.array(self.indices)
        first = first_index if first_index != "auto" else int(indices.min() >= 1)
        width = self.spec.width if self.spec.width is not None else max(int(indices.max()) - first + 1, 1)
        self.spec.check_budget(len(self.lines), width)
        rows = np.repeat(np.arange(len(self.lines)), np.array(self.counts))
        wrong = (indices < first) | (indices >= first + width)
        if wrong.any():
            place = int(np.argmax(wrong))
            line, index = self.lines[int(rows[place])], indices[place]
            raise InvalidTensor(f"line {line}: index {index} is not from {first} to {first + width - 1}")
        dense = np.zeros((len(self.lines), width), self.spec.dtype)
        floats = self.spec.dtype.kind == "f"
        dense[rows, indices - first] = cast(np.array(self.values), self.spec.dtype) if floats else self.values
        return dense
