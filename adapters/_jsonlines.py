"""JSON Lines: a JSON value a line.

Only LF ends a line, since U+2028 and its like may stand in strings; blank lines are skipped, and never written.
Source: jsonlines.org; the sagemaker SDK's JSONLinesDeserializer for what clients cannot read.
"""

import io
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import orjson
from msgspec import Struct

from adapters._excerpt import excerpt
from adapters._numbers import parse_grid
from adapters._rowspec import RowSpec
from adapters._tensorjson import check_size, dump
from gateway.errors import MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

_BOM = b"\xef\xbb\xbf"


class Lines(Struct, frozen=True):
    """The values of a body, and the number of each one's line, from 1."""

    values: list[Any]
    numbers: Sequence[int]


# In...


def decode_jsonlines(body: bytes, limits: DecodeLimits) -> Lines:
    """All values; NaN and the infinities are read too. Raises MalformedBody, which names the line, and BodyTooLarge."""
    check_size(body, limits.elements)
    values: list[Any] = []
    numbers = array("Q")
    for number, line in enumerate(io.BytesIO(body.removeprefix(_BOM)), 1):
        text = line.strip()
        if text:
            values.append(_value(text, number))
            numbers.append(number)
    if not values:
        raise MalformedBody("the body has no lines")
    return Lines(values, numbers)


def _value(text: bytes, number: int) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"N" in text or b"I" in text:
            return _lenient(text, number)
        _refuse(text, number, error.msg)


def _lenient(text: bytes, number: int) -> Any:
    """NaN, Infinity and -Infinity are no JSON, but Python's clients write them."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse(text, number, getattr(error, "msg", "nested too deeply"))


def _refuse(text: bytes, number: int, reason: str) -> NoReturn:
    if text.endswith(b","):
        reason = "it ends with a comma"
    raise MalformedBody(f"line {number}: not JSON: {excerpt(reason)[1:-1]}")


def decode_dense_lines(body: bytes, spec: RowSpec, openings: Sequence[bytes]) -> Tensor | None:
    """A body whose lines all hold one vector each in the same wrapping, as `[rows, width]`; None for any other.

    `openings` are the wrappings, without spaces and up to the vector's bracket, such as `{"features":[`.
    PERF: the lines become CSV by two replacements; 4 times as fast as line by line.
    """
    text = body.removeprefix(_BOM).strip()
    first = text.partition(b"\n")[0].strip()
    opening, closing = first[: first.rfind(b"[") + 1], first[first.find(b"]") :]
    if not opening or opening.translate(None, b" \t") not in openings or not text.endswith(closing):
        return None
    if any(set(b" \t") & set(name) for name in opening.split(b'"')[1::2]):
        return None  # a space that is part of a name
    if closing.translate(None, b" \t") != b"]" + b"}" * opening.count(b"{"):
        return None
    columns = first.count(b",") - opening.count(b",") + 1
    if spec.width is not None and columns != spec.width:
        return None
    ends = closing + (b"\r\n" if b"\r\n" in text else b"\n") + opening
    joined = text[len(opening) : -len(closing)]
    rows = joined.replace(ends, b"\n")
    grid = parse_grid(rows, columns, spec)
    # Each LF must come from such an end, or a line was broken within its vector.
    return grid if grid is not None and (len(grid) - 1) * (len(ends) - 1) == len(joined) - len(rows) else None


# Out...


def encode_jsonlines(outputs: Mapping[str, Tensor]) -> bytes:
    """A line for each row: an object of the outputs' rows by name. NaN and the infinities are null."""
    return b"".join([record + b"\n" for record in encode_records(outputs)])


def encode_records(outputs: Mapping[str, Tensor]) -> list[bytes]:
    """The JSON object of each row."""
    if len(outputs) == 1:
        [(name, output)] = outputs.items()
        start = b"{%b:" % orjson.dumps(name)
        return [start + row + b"}" for row in encode_rows(output)]
    keys = [orjson.dumps(name) + b":" for name in outputs]
    columns = [[key + row for row in encode_rows(output)] for key, output in zip(keys, outputs.values(), strict=True)]
    return [b"{%b}" % b",".join(row) for row in zip(*columns, strict=True)]


def encode_rows(output: Tensor) -> list[bytes]:
    """The JSON text of each row of an output."""
    if not len(output):
        return []
    if output.dtype.kind in "OUS" or not output.size:
        return [dump(output[row : row + 1], "null")[1:-1] for row in range(len(output))]
    # PERF: one text, cut where rows meet, which is where the most brackets are.
    brackets = output.ndim - 1
    text = dump(output, "null")[1 + brackets : -1 - brackets]
    opening, closing = b"[" * brackets, b"]" * brackets
    rows = text.split(closing + b"," + opening)
    return [opening + row + closing for row in rows] if brackets else rows
