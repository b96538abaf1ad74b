"""CSV without a header row, as SageMaker's containers take it, and CSV out.

RFC 4180 with commas. Lines end in LF or CRLF, blank ones are skipped; an empty cell is NaN to a float model; spaces
after a comma do not count. Written: one line a row, each with its LF.
Source: Amazon SageMaker developer guide, "Common data formats"; what sagemaker-xgboost-container and
sagemaker-containers do where it is silent.
"""

import csv
import io
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import nan
from typing import Any

import numpy as np
import pybase64

from adapters._cast import cast
from adapters._cells import cell_type
from adapters._excerpt import excerpt
from adapters._numbers import MISSING, chunks, parse_grid
from adapters._rowspec import RowSpec
from adapters._tensorjson import dump, is_finite
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.types import Tensor

_BOM = b"\xef\xbb\xbf"
_LF, _COMMA = b"\n,"


# In...


def decode_csv(body: bytes, spec: RowSpec, label_size: int = 0) -> Tensor:
    """The body's rows as `[rows, width]`, without their first `label_size` columns.

    Raises MalformedBody, InvalidTensor and BodyTooLarge; rows, columns and lines are counted from 1, and a line is
    named where blank lines make it differ from the row.
    """
    grid = decode_plain_csv(body, spec, label_size)
    return _CellReader(spec, label_size).read(_unicode(body)) if grid is None else grid


def decode_plain_csv(body: bytes, spec: RowSpec, label_size: int = 0) -> Tensor | None:
    """As `decode_csv`, for a body of plain numbers and gaps; None for any other, which takes thirty times as long."""
    text = body.removeprefix(_BOM)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    text = text.strip(b" \t\n")
    if not text:
        raise MalformedBody("the body has no rows")
    if spec.dtype.kind != "O" and b'"' not in text and b"\r" not in text:
        columns = text.partition(b"\n")[0].count(b",") + 1
        if columns <= label_size:
            raise _no_features(label_size, columns)
        if spec.width is not None:
            RowSpec(spec.dtype, spec.width + label_size).check_width(columns, "row 1")
        grid = _parse_plain(text, columns, spec)
        if grid is not None:
            return np.ascontiguousarray(grid[:, label_size:])
    return None


def _parse_plain(text: bytes, columns: int, spec: RowSpec) -> Tensor | None:
    """All columns, if the text holds plain numbers and perhaps gaps."""
    grids: list[Tensor] = []
    rows = 0
    for lines in chunks(text):
        grid = parse_grid(lines, columns, spec)
        if grid is None and spec.dtype.kind == "f" and MISSING not in lines:
            grid = parse_grid(_without_gaps(lines), columns, spec, missing=True)
        if grid is None:
            return None
        grids.append(grid)
        rows += len(grid)
        spec.check_budget(rows, columns)
    return grids[0] if len(grids) == 1 else np.concatenate(grids)


def _without_gaps(text: bytes) -> bytes:
    """The text without blank lines, and with MISSING in each empty cell and for each NaN.

    PERF: missing values are what CSV is used for: four times as fast as cell by cell. numpy finds pairs of bytes
    several times faster than bytes.replace does.
    """
    codes = np.frombuffer(b"\n%b\n" % text, np.uint8)
    line_ends = codes == _LF
    blank = line_ends[1:] & line_ends[:-1]
    if blank.any():
        codes = codes[np.append(True, ~blank)]
    text = codes.tobytes()
    if b"n" in text or b"N" in text:
        text = text.replace(b"nan", MISSING).replace(b"NaN", MISSING)
        codes = np.frombuffer(text, np.uint8)
    ends = (codes == _COMMA) | (codes == _LF)
    gaps = (np.flatnonzero(ends[1:] & ends[:-1]) + 1).tolist()
    return MISSING.join([text[start:end] for start, end in pairwise([0, *gaps, len(text)])])[1:-1]


def _unicode(body: bytes) -> str:
    try:
        return body.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise MalformedBody(f"line {line}: the text is not UTF-8") from None


def _no_features(label_size: int, columns: int) -> InvalidTensor:
    return InvalidTensor(f"row 1: expected more than the {label_size} columns of the label, got {columns}")


class _CellReader:
    """Reads cell by cell: slower, but takes every spelling and says what is wrong where."""

    def __init__(self, spec: RowSpec, label_size: int) -> None:
        self.spec = spec
        self.label_size = label_size
        self.columns = None if spec.width is None else spec.width + label_size
        self.rows = 0
        self.text = spec.dtype.kind == "O"
        self.parse, self.noun = cell_type(spec.dtype)
        self.cells: list[Any] | array[float] = array("d") if spec.dtype.kind == "f" else []

    def read(self, text: str) -> Tensor:
        """All rows of the text."""
        plain = self.spec.dtype.kind == "f" and text.isascii() and "_" not in text
        reader = csv.reader(self._lines(text), skipinitialspace=True, strict=True)
        try:
            for row in reader:
                if not row or (self.text and row == [""] and self.columns not in (None, 1)):
                    continue
                self.rows += 1
                self._check_columns(len(row), reader.line_num)
                self._take(row[self.label_size :], reader.line_num, plain)
        except csv.Error as error:
            reason = "a CR alone does not end a line" if "new-line" in str(error) else error
            raise MalformedBody(f"line {reader.line_num}: {reason}") from None
        if not self.rows:
            raise MalformedBody("the body has no rows")
        return self._tensor()

    def _lines(self, text: str) -> Iterator[str]:
        """The physical lines. One that is too wide is refused before it becomes cells."""
        for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
            count = line.count(",") + 1
            if count > self.spec.limits.elements:
                raise BodyTooLarge(f"line {number}: over the limit of {self.spec.limits.elements} values")
            if not self.text and self.columns is not None and count > self.columns and "\r" not in line.rstrip():
                self.rows += 1
                self._check_columns(count, number)
            yield "\n" if not self.text and line.isspace() else line

    def _check_columns(self, count: int, line: int) -> None:
        if self.columns is None:
            if count <= self.label_size:
                raise _no_features(self.label_size, count)
            self.columns = count
        if count != self.columns:
            raise InvalidTensor(f"{self._place(line)}: expected {self.columns} columns, got {count}")
        self.spec.check_budget(self.rows, count - self.label_size)

    def _take(self, cells: list[str], line: int, plain: bool) -> None:
        """Add a row's values. PERF: `plain` floats need no look at each cell's spelling."""
        if plain:
            try:
                self.cells.extend([float(cell) if cell else nan for cell in cells])
                return
            except ValueError:
                pass
        self.cells.extend([self._value(cells, column, line) for column in range(len(cells))])

    def _value(self, cells: list[str], column: int, line: int) -> Any:
        try:
            return self.parse(cells[column])
        except ValueError:
            place = f"{self._place(line)}, column {column + self.label_size + 1}"
            header = self.rows == 1 and all(cell.lstrip()[:1].isalpha() for cell in cells)
            hint = "; a header row is not allowed" if header else ""
            raise MalformedBody(f"{place}: {excerpt(cells[column])} is not {self.noun}{hint}") from None

    def _place(self, line: int) -> str:
        return f"row {self.rows}" if line == self.rows else f"row {self.rows} (line {line})"

    def _tensor(self) -> Tensor:
        dtype = self.spec.dtype
        if dtype.kind == "f":
            return cast(np.array(self.cells, np.float64), dtype).reshape(self.rows, -1)
        flat = np.empty(len(self.cells), dtype)
        flat[:] = self.cells
        return flat.reshape(self.rows, -1)


# Out...


def encode_csv(outputs: Sequence[Tensor]) -> bytes:
    """One line a row: the values of each output in turn. NaN and the infinities are `nan`, `inf` and `-inf`."""
    if not len(outputs[0]):
        return b""
    if len(outputs) == 1 and outputs[0].dtype.kind not in "OUS":
        text = _numeric_lines(outputs[0])
        return text + b"\n" if text else b""
    columns = [_text_lines(o) if o.dtype.kind in "OUS" else _numeric_lines(o).split(b"\n") for o in outputs]
    return b"".join([b",".join(cells) + b"\n" for cells in zip(*columns, strict=True) if any(cells)])


def _numeric_lines(output: Tensor) -> bytes:
    """The rows between LFs, with none at the end. PERF: 15 times as fast as csv.writer."""
    if not output.size:
        return b""
    text = dump(output.reshape(len(output), -1))[2:-2].replace(b"],[", b"\n")
    return text if is_finite(output) else text.replace(b"NaN", b"nan").replace(b"Infinity", b"inf")


def _text_lines(output: Tensor) -> list[bytes]:
    lines = _Sink()
    # NOTE: csv.writer quotes a cell for the bytes that end a line, and readers stumble on a bare CR too.
    csv.writer(lines, lineterminator="\r\n").writerows(map(_cells, output.reshape(len(output), -1)))
    return [line[:-2].encode("utf-8", "surrogatepass") for line in lines]


class _Sink(list[str]):
    """A file for csv.writer, which writes a row at a time."""

    def write(self, text: str) -> None:
        self.append(text)


def _cells(row: Tensor) -> list[str]:
    return [_cell(item) for item in row.tolist()]


def _cell(item: str | bytes) -> str:
    """Bytes that are no text are written in base64."""
    if isinstance(item, str):
        return item
    try:
        return item.decode()
    except UnicodeDecodeError:
        return pybase64.b64encode(item).decode("ascii")
