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

_HEAD = re.compile(rb'\s*(?:\{\s*"instances"\s*:\s*(\[)|(\[))\s*')
_TAILS = {True: b"]}", False: b"]"}
_SPACE = b" \t\r\n"


def json_rows(body: bytes, spec: RowSpec) -> Tensor | None:
    """The rows of `{"instances": [...]}`, or of a list of lists, as `[rows, width]`.

    PERF: where all rows are wrapped alike, one replacement makes them lines of numbers; 4 times as fast as row by row.
    """
    head = _HEAD.match(body)
    if head is None or spec.dtype.kind not in "fiu":
        return None
    tail = _TAILS[head[1] is not None]
    start, end = body.find(b"[", head.end()), body.find(b"]", head.end())
    following = body.find(b"[", end)
    opening = body[head.end() : start + 1]
    if start < 0 or end < start or opening.translate(None, _SPACE) not in OPENINGS:
        return None
    columns = body.count(b",", start, end) + 1
    if spec.width is not None and columns != spec.width:
        return None
    closing = b"]" + b"}" * opening.count(b"{")
    joint = body[end : following + 1] if following >= 0 else b""
    if joint and joint.translate(None, _SPACE) != closing + b"," + opening.translate(None, _SPACE):
        return None
    last = body.rfind(b"]", 0, body.rfind(b"]"))
    if last < end or body[last:].translate(None, _SPACE) != closing + tail:
        return None
    rows = body[start + 1 : last]
    return parse_grid(_lines(rows, joint), columns, spec)


def _lines(rows: bytes, joint: bytes) -> bytes:
    rows = rows.replace(b"\n", b" ") if b"\n" in joint or b"\n" in rows else rows
    joint = joint.replace(b"\n", b" ")
    return rows.replace(joint, b"\n") if joint else rows
