"""The commonest JSON bodies - one vector a row, all wrapped alike - straight to numbers.

Anything else comes back as None, for the exact way to judge.
"""

import re

from adapters._numbers import parse_grid
from adapters._rowspec import RowSpec
from gateway.types import Tensor

OPENINGS = tuple(
    opening.encode() for opening in ('{"features":[', '{"data":{"features":{"values":[', '{"data":{"features":[', "[")
)
"""What stands before the vector of a row, without spaces."""

_HEAD = re.compile(rb'\s*(\{\s*"instances"\s*:\s*)?\[\s*')
_OPENING = re.compile(
    rb'(?:\{\s*"features"\s*:\s*|\{\s*"data"\s*:\s*\{\s*"features"\s*:\s*(?:\{\s*"values"\s*:\s*)?)?\['
)
_JOINT = re.compile(rb"(\](?:\s*\})*)\s*,\s*")
_SPACE = b" \t\r\n"


def json_rows(body: bytes, spec: RowSpec) -> Tensor | None:
    """The rows of `{"instances": [...]}`, or of a list of lists, as `[rows, width]`.

    PERF: where all rows are wrapped alike, one replacement makes them lines of numbers; 4 times as fast as row by row.
    """
    head = _HEAD.match(body)
    opening = _OPENING.match(body, head.end()) if head else None
    if head is None or opening is None or spec.dtype.kind not in "fiu":
        return None
    first = body.find(b"]", opening.end())
    columns = body.count(b",", opening.end(), first) + 1
    if first < 0 or (spec.width is not None and columns != spec.width):
        return None
    closing = b"]" + b"}" * opening[0].count(b"{")
    last = body.rfind(b"]", 0, body.rfind(b"]"))
    if last < first or body[last:].translate(None, _SPACE) != closing + (b"]}" if head[1] else b"]"):
        return None
    joint = b""
    if last > first:
        between = _JOINT.match(body, first)
        again = _OPENING.match(body, between.end()) if between else None
        if between is None or again is None or between[1].translate(None, _SPACE) != closing:
            return None
        if again[0].translate(None, _SPACE) != opening[0].translate(None, _SPACE):
            return None
        joint = body[first : again.end()]
    return parse_grid(_lines(body[opening.end() : last], joint), columns, spec)


def _lines(rows: bytes, joint: bytes) -> bytes:
    """The rows between line feeds, which stand nowhere else."""
    if b"\n" in rows:
        rows, joint = rows.replace(b"\n", b" "), joint.replace(b"\n", b" ")
    return rows.replace(joint, b"\n") if joint else rows
