"""LIBSVM rows become dense, and what does not fit is refused by its line."""

import numpy as np
import pytest

from adapters._libsvm import FirstIndex, decode_libsvm
from adapters._rowspec import RowSpec
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits

FLOATS = RowSpec(np.dtype(np.float32), 4)
ROW = [1.5, 0.0, 0.0, 23.0]
ZEROS = [0.0] * 4


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"0 0:1.5 3:23", [ROW]),
        (b"0:1.5 3:23\n", [ROW]),
        (b"1 1:1.5 4:23", [ROW]),
        (b"0 0:1.5 3:23\n\n0 1:2.5", [ROW, ZEROS, [0.0, 2.5, 0.0, 0.0]]),
        (b"0 0:1.5 3:23 # note", [ROW]),
        (b"# note\n\n0 0:1.5 3:23\n  # more\n0\n", [ROW, ZEROS]),
        (b"0 0:1.5 3:2.3e1", [ROW]),
        (b"0 3:23 0:1.5", [ROW]),
        (b"-1.5e0\t0:1.5  3:23\r\n\r\n", [ROW]),
        (b"\xef\xbb\xbf0 0:+1.5 3:23.\n\n\n", [ROW]),
        # Numbers that the fast way uses as marks...
        (b"-8000000000000000000 0:1.5 3:23", [ROW]),
        (b"-7000000000000000000 0:1.5 3:23\n0 1:2.5", [ROW, [0.0, 2.5, 0.0, 0.0]]),
        (b"0 0:-7000000000000000000\n0 0:1", [[-7e18, 0, 0, 0], [1.0, 0, 0, 0]]),
        (b"0 0:1e39 3:inf", [[np.inf, 0, 0, np.inf]]),
    ],
)
def test_rows(body: bytes, expected: list[list[float]]) -> None:
    """Labels, comments, order and ends of lines do not matter; a blank line is a row of zeros."""
    np.testing.assert_array_equal(np.array(expected, np.float32), decode_libsvm(body, FLOATS))


@pytest.mark.parametrize(("first", "expected"), [("auto", [7.0, 0, 0, 0]), (1, [7.0, 0, 0, 0]), (0, [0, 7.0, 0, 0])])
def test_first_index(first: FirstIndex, expected: list[float]) -> None:
    """The first column's index is the model's to say; left to the payload, it is 1 when 0 does not occur."""
    assert [expected] == decode_libsvm(b"1:7", FLOATS, first).tolist()


def test_integers() -> None:
    """Integers stay exact, and unset ones are 0."""
    body = b"0:9007199254740993\n1:-1"
    assert decode_libsvm(body, RowSpec(np.dtype(np.int64), 2)).tolist() == [[9007199254740993, 0], [0, -1]]
    assert decode_libsvm(b"0:1", RowSpec(np.dtype(bool), 2)).tolist() == [[True, False]]


def test_free_width() -> None:
    """Where the model takes any width, the largest index sets it."""
    assert decode_libsvm(b"0:1\n2:1", RowSpec(np.dtype(np.float32))).shape == (2, 3)


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (b"", MalformedBody, "the body has no index:value pairs"),
        (b"1\n0\n", MalformedBody, "the body has no index:value pairs"),
        (b"hello", MalformedBody, "line 1: the label 'hello' is not a number"),
        (b"0 0:1\n0 0:x", MalformedBody, "line 2: 'x' is not a number"),
        (b"0 0:", MalformedBody, "line 1: '0:' is not index:value"),
        (b"0 0:1 7", MalformedBody, "line 1: '7' is not index:value"),
        (b"0 0:1_0", MalformedBody, "line 1: '1_0' is not a number"),
        (b"0 qid:1 0:1 3:2", MalformedBody, "line 1: 'qid:1' is not index:value"),
        (b"0 -1:1", MalformedBody, "line 1: '-1:1' is not index:value"),
        (b"0 0:1:2", MalformedBody, "line 1: '1:2' is not a number"),
        (b"0 0:1 0:2", InvalidTensor, "line 1: an index occurs twice"),
        (b"0 0:1\n\n0 4:1", InvalidTensor, "line 3: index 4 is not from 0 to 3"),
        (b"0 1:1 5:1", InvalidTensor, "line 1: index 5 is not from 1 to 4"),
        (b"0 999999999999999999:1 0:1", InvalidTensor, "line 1: index 999999999999999999 is not from 0 to 3"),
        (b"0 0:1 1:1 2:1 3:1 4:1", InvalidTensor, "line 1: 5 values, expected at most 4"),
        (b"0 0:\xff", MalformedBody, "line 1: '0 0:\\ufffd' is not ASCII"),
    ],
)
def test_refused(body: bytes, error: type[Exception], text: str) -> None:
    """A refusal names the line and the words that are wrong."""
    with pytest.raises(error) as caught:
        decode_libsvm(body, FLOATS)
    assert text == str(caught.value)


def test_fixed_base() -> None:
    """Index 0 in a payload that counts from 1 is refused."""
    with pytest.raises(InvalidTensor, match=r"^line 1: index 0 is not from 1 to 4$"):
        decode_libsvm(b"0:1", FLOATS, 1)


def test_other_dtypes() -> None:
    """Values out of range, and models of text, are refused."""
    with pytest.raises(MalformedBody, match=r"^line 1: '300' is not an integer of int8$"):
        decode_libsvm(b"0:300", RowSpec(np.dtype(np.int8), 1))
    with pytest.raises(InvalidTensor, match="takes text"):
        decode_libsvm(b"0:1", RowSpec(np.dtype(object), 1))
    with pytest.raises(InvalidTensor, match="complex64"):
        decode_libsvm(b"0:1", RowSpec(np.dtype(np.complex64), 1))


@pytest.mark.parametrize("body", [b"0:1\n\n\n\n0:1", b"9:1"])
def test_budget(body: bytes) -> None:
    """Rows of zeros and a width by index count against the limit."""
    with pytest.raises(BodyTooLarge, match="limit of 4 values"):
        decode_libsvm(body, RowSpec(np.dtype(np.float32), None, DecodeLimits(elements=4)), 0)


def test_index_beyond_all_integers() -> None:
    """An index that no integer holds is refused like any other that is none."""
    with pytest.raises(MalformedBody, match=r"^line 1: '1e99:1\.5' is not index:value$"):
        decode_libsvm(b"1e99:1.5 3:23", FLOATS)


@pytest.mark.parametrize("line", [b"1 1:1  2:2\n", b"1:1 # x\n", b"2:1 1:1\n", b"1:1\n\n\n\n", b"#\n"])
def test_what_is_read_pair_by_pair_may_be_less(line: bytes) -> None:
    """A thread would be held for a quarter of a minute; the text says what a larger body must be like."""
    spec = RowSpec(np.dtype(np.float32), 2, DecodeLimits(elements=600_000))
    with pytest.raises(BodyTooLarge, match="more than 75000 lines and pairs; a larger one must be plain"):
        decode_libsvm(line * 75_001, spec)
    assert len(decode_libsvm(b"1 1:1 2:2\n" * 75_000, spec)) == 75_000
