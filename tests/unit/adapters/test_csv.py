"""CSV is read exactly, and what is wrong with it is said where it is."""

from math import inf, nan

import numpy as np
import pytest

from adapters._csv import decode_csv, encode_csv
from adapters._rowspec import RowSpec
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits

FLOATS = RowSpec(np.dtype(np.float32), 4)
INTS = RowSpec(np.dtype(np.int64), 3)
TEXTS = RowSpec(np.dtype(object), 2)
ROW = [1.5, 16.0, 14.0, 23.0]
OTHER = [-2.0, 100.25, 15.5, 9.0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"1.5,16,14,23", [ROW]),
        (b"1.5,16.0,14.0,23.0\n", [ROW]),
        (b"1.5,16.0,14.0,23.0\n-2.0,100.25,15.5,9.0", [ROW, OTHER]),
        (b"1.5,16.0,14.0,23.0\r\n-2.0,100.25,15.5,9.0\r\n", [ROW, OTHER]),
        (b"1.5,16.0,14.0,23.0\n-2.0,100.25,15.5,9.0\n\n\n", [ROW, OTHER]),
        (b"\n1.5,16.0,14.0,23.0\n\n \t\n-2.0,100.25,15.5,9.0", [ROW, OTHER]),
        (b"1.5,16.0,14.0,23.0\r\n\r\n-2.0,100.25,15.5,9.0", [ROW, OTHER]),
        (b'"1.5","16.0","14.0","23.0"', [ROW]),
        (b'"1.5",16.0, "14.0",23.0 \n\n-2.0,100.25,15.5,9.0', [ROW, OTHER]),
        (b"1.5,16,14,23\t", [ROW]),
        (b" 1.5 ,\t16, 14 ,  23", [ROW]),
        (b"\xef\xbb\xbf1.5,16,14,23", [ROW]),
        (b'\xef\xbb\xbf"1.5",16,14,23', [ROW]),
        (b"1.5e0,+16,.14e2,23.", [ROW]),
        (b"15e-1,016,14.0e+0,2.3E1", [ROW]),
        (b"1.5,,14,", [[1.5, nan, 14.0, nan]]),
        (b",,,", [[nan] * 4]),
        (b"nan,NaN,inf,-Infinity", [[nan, nan, inf, -inf]]),
        (b"1,2,3,4\n,nan,,4\n\n5,,7,NaN", [[1, 2, 3, 4], [nan, nan, nan, 4], [5, nan, 7, nan]]),
        (b'1,"",3,4', [[1, nan, 3, 4]]),
        (b"1e39,-1e39,1e999,1e-999", [[inf, -inf, inf, 0.0]]),
        # Numbers that the fast way uses as marks...
        (b"-1.5e-300,1,2,3\n1,2,3,-1.5e-300", [[0, 1, 2, 3], [1, 2, 3, 0]]),
        (b"-2.5e-300,,2,3", [[0, nan, 2, 3]]),
        (b"-25e-301,,2,3", [[0, nan, 2, 3]]),
    ],
)
def test_floats(body: bytes, expected: list[list[float]]) -> None:
    """Every spelling of rows, ends of lines and numbers gives the same tensor."""
    tensor = decode_csv(body, FLOATS)
    assert np.float32 == tensor.dtype
    np.testing.assert_array_equal(np.array(expected, np.float32), tensor)
    assert tensor.flags.c_contiguous


@pytest.mark.parametrize(
    ("dtype", "body", "expected"),
    [
        ("int64", b"9007199254740993,0,-1", [[9007199254740993, 0, -1]]),
        ("int64", b"9223372036854775807,-9223372036854775808,-9223372036854775807", [[2**63 - 1, -(2**63), 1 - 2**63]]),
        ("uint64", b"18446744073709551615,0,18446744073709551614", [[2**64 - 1, 0, 2**64 - 2]]),
        ("int64", b"1.0,+2,1e3", [[1, 2, 1000]]),
        ("int8", b"-128,127,0", [[-128, 127, 0]]),
        ("int32", b'"1",2,3\n\n4,5,6', [[1, 2, 3], [4, 5, 6]]),
        ("bool", b"true,0,1.0\nFALSE,1,True", [[True, False, True], [False, True, True]]),
        ("float64", b"0.1,3e10,9007199254740993", [[0.1, 3e10, 9007199254740992.0]]),
        ("float16", b"1.5,2,70000", [[1.5, 2.0, inf]]),
    ],
)
def test_dtypes(dtype: str, body: bytes, expected: list[list[float]]) -> None:
    """Integers never pass through a float, and every dtype keeps its range."""
    tensor = decode_csv(body, RowSpec(np.dtype(dtype), 3))
    assert dtype == tensor.dtype.name
    assert expected == tensor.tolist()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"entity_id_1, 192.168.1.2", [["entity_id_1", "192.168.1.2"]]),
        (b'"a,b","c""d\ne"\n\nx,y\n', [["a,b", 'c"d\ne'], ["x", "y"]]),
        (b"1,2\n \n3,", [["1", "2"], ["3", ""]]),
        ("é,\u2028".encode(), [["é", "\u2028"]]),
    ],
)
def test_texts(body: bytes, expected: list[list[str]]) -> None:
    """Quotes, line breaks in quotes and spaces after commas are RFC 4180's."""
    assert expected == decode_csv(body, TEXTS).tolist()


@pytest.mark.parametrize(
    ("body", "expected"), [(b'""\n7', [[nan], [7]]), (b"7\n\n8", [[7], [8]]), (b"nan\n8", [[nan], [8]])]
)
def test_one_column(body: bytes, expected: list[list[float]]) -> None:
    """A quoted empty cell is a row, a blank line is none."""
    np.testing.assert_array_equal(expected, decode_csv(body, RowSpec(np.dtype(np.float64), 1)))


@pytest.mark.parametrize("body", [b"9,1.5,16,14,23", b"cat,1.5,16,14,23", b'"9",1.5,16,14,23', b",1.5,16,14,23\n\n"])
def test_label(body: bytes) -> None:
    """The columns of the label are dropped, whatever they hold."""
    assert decode_csv(body, FLOATS, label_size=1).tolist() == [ROW]


def test_free_width() -> None:
    """Where the model takes any width, the first row sets it."""
    spec = RowSpec(np.dtype(np.float32))
    assert decode_csv(b"1,2,3\n4,5,6", spec).shape == (2, 3)
    assert decode_csv(b"l,2,3\n\nl,5,6", spec, label_size=1).shape == (2, 2)
    with pytest.raises(InvalidTensor, match=r"^row 2: expected 3 columns, got 2$"):
        decode_csv(b"1,2,3\n4,5", spec)


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (b"", MalformedBody, "the body has no rows"),
        (b"\n \r\n", MalformedBody, "the body has no rows"),
        (b"1,2,3", InvalidTensor, "row 1: expected 4 columns, got 3"),
        (b"1,2,3,4,5", InvalidTensor, "row 1: expected 4 columns, got 5"),
        (b"1,2,3,4\n\n1,2,3", InvalidTensor, "row 2 (line 3): expected 4 columns, got 3"),
        (b"1,2,3,4\n1,2,3,4,5", InvalidTensor, "row 2: expected 4 columns, got 5"),
        (b"1;2;3;4", InvalidTensor, "row 1: expected 4 columns, got 1"),
        (b"a,b,c,d\n1,2,3,4", MalformedBody, "row 1, column 1: 'a' is not a number; a header row is not allowed"),
        (b"1,b,3,4\n1,2,3,4", MalformedBody, "row 1, column 2: 'b' is not a number"),
        (b"1,2,3,4\n\n5,6,7,x", MalformedBody, "row 2 (line 3), column 4: 'x' is not a number"),
        (b"0x10,16,14,23", MalformedBody, "row 1, column 1: '0x10' is not a number"),
        (b"1,true,3,4", MalformedBody, "row 1, column 2: 'true' is not a number"),
        (b"1,1_0,3,4", MalformedBody, "row 1, column 2: '1_0' is not a number"),
        ("1,\u0661,3,4".encode(), MalformedBody, "row 1, column 2: '\\u0661' is not a number"),
        (b"1,[2],3,4", MalformedBody, "row 1, column 2: '[2]' is not a number"),
        (b"1,2\n,3,4", InvalidTensor, "row 1: expected 4 columns, got 2"),
        (b'1,"2\n",3,"x"', MalformedBody, "row 1 (line 2), column 4: 'x' is not a number"),
        (b'"1,2,3,4', MalformedBody, "line 1: unexpected end of data"),
        (b'1,"2"x,3,4', MalformedBody, "line 1: ',' expected after '\"'"),
        (b"1,2,3,4\r5,6,7,8", MalformedBody, "line 1: a CR alone does not end a line"),
        (b"1,\r2,3,4", MalformedBody, "line 1: a CR alone does not end a line"),
        (b'"1",2\r,3,4', MalformedBody, "line 1: a CR alone does not end a line"),
        (b"1,2,3,4\n1,2,\xff,4", MalformedBody, "line 2: the text is not UTF-8"),
        (b"1,2,3,%b" % (b"x" * 99), MalformedBody, f"row 1, column 4: '{'x' * 32}'... is not a number"),
    ],
)
def test_refused(body: bytes, error: type[Exception], text: str) -> None:
    """A refusal names row, column and line in one short line."""
    with pytest.raises(error) as caught:
        decode_csv(body, FLOATS)
    assert text == str(caught.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"1.5,2,3", "row 1, column 1: '1.5' is not an integer of int64"),
        (b"1,,3", "row 1, column 2: '' is not an integer of int64"),
        (b"1,2,nan", "row 1, column 3: 'nan' is not an integer of int64"),
        (b"9223372036854775808,1,2", "row 1, column 1: '9223372036854775808' is not an integer of int64"),
        (b"1,2,1e300", "row 1, column 3: '1e300' is not an integer of int64"),
    ],
)
def test_integers_refused(body: bytes, text: str) -> None:
    """What is no integer of the dtype is refused, not rounded."""
    with pytest.raises(MalformedBody) as caught:
        decode_csv(body, INTS)
    assert text == str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "body", "text"),
    [
        ("int8", b"300", "row 1, column 1: '300' is not an integer of int8"),
        ("int8", b"1_0", "row 1, column 1: '1_0' is not an integer of int8"),
        ("bool", b"2", "row 1, column 1: '2' is not a bool"),
        ("float32", b"1\n\n[2]", "row 2 (line 3), column 1: '[2]' is not a number"),
        ("float32", b"\x0b", "the body has no rows"),
    ],
)
def test_other_dtypes_refused(dtype: str, body: bytes, text: str) -> None:
    """Each dtype has its own range and its own words."""
    with pytest.raises(MalformedBody) as caught:
        decode_csv(body, RowSpec(np.dtype(dtype), 1))
    assert text == str(caught.value)


def test_label_only() -> None:
    """Rows without a feature are refused."""
    for body in (b"1", b'"1"'):
        with pytest.raises(InvalidTensor, match=r"^row 1: expected more than the 1 columns of the label, got 1$"):
            decode_csv(body, RowSpec(np.dtype(np.float32)), label_size=1)


@pytest.mark.parametrize("first", [b"", b"1,2,3,4\n", b'"1",2,3,4\n'])
def test_a_million_columns(first: bytes) -> None:
    """A row far too wide is refused by its count of commas."""
    with pytest.raises(InvalidTensor, match="expected 4 columns, got 1000000"):
        decode_csv(first + b",".join([b"1"] * 1_000_000), FLOATS)


@pytest.mark.parametrize("body", [b"1,2\n3,4\n5,6", b"1,2\n3,4\n,6", b'"1",2\n3,4\n5,6', b"1,2,3,4,5,6"])
def test_budget(body: bytes) -> None:
    """More values than the limit are refused, however they are spelled."""
    with pytest.raises(BodyTooLarge, match="limit of 5 values"):
        decode_csv(body, RowSpec(np.dtype(np.float32), None, DecodeLimits(elements=5)))


def test_budget_of_texts() -> None:
    """A line of more cells than the limit is refused before they are cut."""
    with pytest.raises(BodyTooLarge, match=r"^line 2: over the limit of 5 values$"):
        decode_csv(b"a\n" + b"," * 9, RowSpec(np.dtype(object), None, DecodeLimits(elements=5)))


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([np.float32([ROW, OTHER])], b"1.5,16.0,14.0,23.0\n-2.0,100.25,15.5,9.0\n"),
        ([np.float32([0.25, 0.75])], b"0.25\n0.75\n"),
        ([np.float32([5, 2]), np.float32([36.5, 90.25])], b"5.0,36.5\n2.0,90.25\n"),
        ([np.float32([0.1])], b"0.1\n"),
        ([np.int64([[9007199254740993, 0, -1]])], b"9007199254740993,0,-1\n"),
        ([np.float32([[1.5, nan], [inf, -inf]])], b"1.5,nan\ninf,-inf\n"),
        ([np.float64([[[1, 2], [3, 4]]])], b"1.0,2.0,3.0,4.0\n"),
        ([np.array([["a,b", 'c"d'], ["", "x\ny"]], object), np.int8([1, 2])], b'"a,b","c""d",1\n,"x\ny",2\n'),
        ([np.array(["x\ry"], object)], b'"x\ry"\n'),
        ([np.array([b"text", b"\xff"], object)], b"text\n/w==\n"),
        ([np.array([True, False])], b"true\nfalse\n"),
        ([np.zeros((0, 3), np.float32)], b""),
        ([np.zeros((2, 0), np.float32)], b""),
        ([np.zeros((0,), object), np.zeros((0, 2))], b""),
        ([np.asfortranarray(np.int32([[1, 2], [3, 4]]))], b"1,2\n3,4\n"),
    ],
)
def test_out(outputs: list[np.ndarray], expected: bytes) -> None:
    """A line a row, each with its LF, the outputs side by side."""
    assert expected == encode_csv(outputs)
