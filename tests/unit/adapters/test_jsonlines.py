"""JSON Lines: each line one value, a bad one named by its number."""

from math import inf, isnan, nan
from typing import Any

import numpy as np
import pytest

from adapters._jsonlines import (
    decode_dense_lines,
    decode_jsonlines,
    encode_jsonlines,
    encode_records,
    encode_rows,
)
from adapters._rowspec import RowSpec
from gateway.errors import BodyTooLarge, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

LIMITS = DecodeLimits()
FLOATS = RowSpec(np.dtype(np.float32), 2)
OPENINGS = (b"[", b'{"features":[', b'{"data":{"features":{"values":[')


@pytest.mark.parametrize(
    ("body", "values", "numbers"),
    [
        (b'{"a": 1}', [{"a": 1}], [1]),
        (b'{"a": 1}\n', [{"a": 1}], [1]),
        (b'{"a": 1}\r\n[2]\r\n', [{"a": 1}, [2]], [1, 2]),
        (b'\n{"a": 1}\n \t\n\n  7  \n\n', [{"a": 1}, 7], [2, 5]),
        (b"\xef\xbb\xbf1\n2", [1, 2], [1, 2]),
        ('{"id": "\u2028\u0085\x0c"}'.replace("\x0c", "\\f").encode(), [{"id": "\u2028\u0085\x0c"}], [1]),
        (b"[9007199254740993, -9223372036854775808]", [[9007199254740993, -(2**63)]], [1]),
        (b"[Infinity, -Infinity]\n[1]", [[inf, -inf], [1]], [1, 2]),
    ],
)
def test_lines(body: bytes, values: list[Any], numbers: list[int]) -> None:
    """Only LF ends a line, blank lines are skipped but counted, and integers stay exact."""
    lines = decode_jsonlines(body, LIMITS)
    assert (values, numbers) == (lines.values, list(lines.numbers))


def test_nan() -> None:
    """NaN, which Python's clients write, is read."""
    [[value]] = decode_jsonlines(b"[NaN]", LIMITS).values
    assert isnan(value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body has no lines"),
        (b"\n\n", "the body has no lines"),
        (b'{"a": 1},\n{"a": 2}', "line 1: not JSON: it ends with a comma"),
        (b'1\n\n{"a": [1] ', "line 3: not JSON: "),
        (b'{\n "a": 1\n}', "line 1: not JSON: "),
        (b"1\n{oops}", "line 2: not JSON: "),
        (b"1\n2 3", "line 2: not JSON: "),
        (b"1\n[NaN, oops]", "line 2: not JSON: "),
        (b'1\n"N\xff"', "line 2: not JSON: "),
        (b'1\n"\xff"', "line 2: not JSON: "),
        (b"1\n" + b"[" * 5000 + b"NaN" + b"]" * 5000, "line 2: not JSON: nested too deeply"),
    ],
)
def test_refused(body: bytes, text: str) -> None:
    """A line that is no JSON is named by its number, in one short line of ASCII."""
    with pytest.raises(MalformedBody) as caught:
        decode_jsonlines(body, LIMITS)
    message = str(caught.value)
    assert message.startswith(text)
    assert len(message) < 80
    assert message.isascii()
    assert "\n" not in message


def test_budget() -> None:
    """More values than the limit are refused before they are built."""
    with pytest.raises(BodyTooLarge, match="limit of 4 values"):
        decode_jsonlines(b"[1,2,3,4,5,6,7]", DecodeLimits(elements=4))


@pytest.mark.parametrize(
    "body",
    [
        b"[1,2]\n[3,4.5]",
        b"[1,2]\r\n[3,4.5]\r\n",
        b'{"features":[1,2]}\n{"features":[3,4.5]}\n',
        b'{"features": [1, 2]}\n{"features": [3, 4.5]}',
        b'\xef\xbb\xbf{"data": {"features": {"values": [1, 2]}}}\n{"data": {"features": {"values": [3, 4.5]}}}',
    ],
)
def test_dense(body: bytes) -> None:
    """Lines that all wrap one vector alike are read in one step."""
    tensor = decode_dense_lines(body, FLOATS, OPENINGS)
    assert tensor is not None
    assert tensor.tolist() == [[1.0, 2.0], [3.0, 4.5]]
    assert np.float32 == tensor.dtype


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b"[1,2,3]",
        b"[1,2]\n[3]",
        b"[1,2]\n\n[3,4]",
        b"[1,2]\n [3,4]",
        b"[1,2]\n[3,4],",
        b"[1,2\n3,4]",
        b"[1,2]\n[3,4\n5,6]",
        b"[1,2]\n3,4\n[5,6]",
        b"[[1,2]]",
        b"[[1,2],[3,4]]",
        b'[1,"2"]',
        b"[1,NaN]",
        b"[1,]",
        b"[]",
        b'{"other":[1,2]}',
        b'{"features":[1,2],"id":3}',
        b'{"features":[1,2]}}',
        b'{"features":[1,2]',
        b'{"features":[1,2]}\n{"other":[3,4]}',
        b'{"feat ures":[1,2]}',
        b'{" features\t":[1,2]}',
    ],
)
def test_not_dense(body: bytes) -> None:
    """Anything else, right or wrong, is left to the reader of single lines."""
    assert decode_dense_lines(body, FLOATS, OPENINGS) is None


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"score": np.float32([[1.5, 16], [0.1, nan]])}, b'{"score":[1.5,16.0]}\n{"score":[0.1,null]}\n'),
        ({"a": np.float32([5, 2]), "b": np.int64([1, 2])}, b'{"a":5.0,"b":1}\n{"a":2.0,"b":2}\n'),
        (
            {"a": np.float64([[[1, 2], [3, 4]], [[5, 6], [7, inf]]])},
            b'{"a":[[1.0,2.0],[3.0,4.0]]}\n{"a":[[5.0,6.0],[7.0,null]]}\n',
        ),
        ({'q"': np.array(["x],[y", "é"], object)}, '{"q\\"":"x],[y"}\n{"q\\"":"é"}\n'.encode()),
        ({"a": np.array([["x", b"\xff\0"]], object)}, b'{"a":["x",{"b64":"/wA="}]}\n'),
        ({"a": np.zeros((2, 0), np.float32)}, b'{"a":[]}\n{"a":[]}\n'),
        ({"a": np.zeros((0, 2), np.float32)}, b""),
        ({"a": np.zeros((0,)), "b": np.zeros((0,), object)}, b""),
        ({"a": np.array([True])}, b'{"a":true}\n'),
    ],
)
def test_out(outputs: dict[str, Tensor], expected: bytes) -> None:
    """An object a row, each with its LF, null for what JSON cannot say."""
    assert expected == encode_jsonlines(outputs)


def test_pieces() -> None:
    """Records and rows are there without their lines."""
    assert encode_records({"a": np.int8([1, 2])}) == [b'{"a":1}', b'{"a":2}']
    assert encode_rows(np.int8([[1], [2]])) == [b"[1]", b"[2]"]
