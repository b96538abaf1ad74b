"""The fast JSON codec: what it takes, what it leaves to others, and that its parsers can be used again."""

import sys
from typing import Any

import numpy as np
import pytest

from adapters import _tensorjson
from gateway.errors import BodyTooLarge, InferenceFailed

FLOAT32 = np.dtype(np.float32)


def read(body: bytes, dtype: Any = np.float32) -> Any:
    """The list under "a" as nested Python values; None if the fast way leaves it."""

    def use(document: Any) -> Any:
        tensor = _tensorjson.numbers(document["a"], np.dtype(dtype), body)
        if tensor is None:
            return None
        expected = b'{"a":' + _tensorjson.skeleton(tensor.shape) + b"}"
        return tensor.tolist() if _tensorjson.is_rectangular(body, [tensor.shape], lambda: expected) else None

    return _tensorjson.borrow(body, use)


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("[1, 2.5]", "float32", [1.0, 2.5]),
        ("[[1, 2], [3, 4]]", "float64", [[1.0, 2.0], [3.0, 4.0]]),
        ("[[[1], [2]], [[3], [4]]]", "int8", [[[1], [2]], [[3], [4]]]),
        ("[9007199254740993]", "int64", [9007199254740993]),
        ("[18446744073709551615]", "uint64", [18446744073709551615]),
        ("[1e39, -1e39]", "float32", [float("inf"), float("-inf")]),
        ("[70000]", "float16", [float("inf")]),
    ],
)
def test_rectangles_of_numbers_are_read(text: str, dtype: str, value: Any) -> None:
    """Plain numbers of any rank are read exactly."""
    assert read(b'{"a":' + text.encode() + b"}", dtype) == value


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("[1, [2]]", "float32"),
        ("[[1, 2], [3]]", "float32"),
        ("[[1, [2]], [3, 4]]", "float32"),
        ("[[1, 2], 3, 4]", "float32"),
        ("[[1], [[2]]]", "float32"),
        ("[[1, 2], [], [3, 4, 5, 6]]", "float32"),
        ("[]", "float32"),
        ("[[], []]", "float32"),
        ("[1, null]", "float32"),
        ("[true]", "float32"),
        ('["1"]', "float32"),
        ("[NaN]", "float32"),
        ("[1e400]", "float32"),
        ("[1.0]", "int32"),
        ("[300]", "uint8"),
        ("[-1]", "uint64"),
        ("[9223372036854775808]", "int64"),
        ("[true]", "bool"),
        ('["a"]', "object"),
    ],
)
def test_everything_else_is_left_to_the_exact_way(text: str, dtype: str) -> None:
    """Ragged lists, other values and numbers that the dtype cannot hold are not judged here."""
    assert read(b'{"a":' + text.encode() + b"}", dtype) is None


@pytest.mark.parametrize(
    ("row", "last", "taken"),
    [
        ("[1]", "[1]", True),
        ("[1]", "1", False),
        ("[1]", "[[1]]", False),
        ("[1,2]", "[1]", False),
        ("[1]", "[1], 5", False),
        ("[[1,2],[3,4]]", "[[1,2],[3,4]]", True),
        ("[[1,2],[3,4]]", "[[1,2,3],[4]]", False),
        ("[[1,2],[3,4]]", "[[1],[2,3,4]]", False),
    ],
)
def test_many_short_rows_are_proven_by_their_skeleton(row: str, last: str, taken: bool) -> None:
    """Where there are too many lists to measure, one wrong list among them is still found."""
    body = b'{"a":[' + f"{row},".encode() * 500 + last.encode() + b"]}"
    assert (read(body) is not None) is taken


def test_keys_that_look_like_numbers_do_not_confuse_the_skeleton() -> None:
    """The skeleton is compared with the keys in it."""
    body = b'{"b":[' + b"[1]," * 500 + b'[1]],"a":[' + b"[1]," * 500 + b"[1,2],3]}"
    assert read(body) is None


def test_a_kept_document_costs_one_request_the_fast_way() -> None:
    """A caller that keeps a part of a document makes the next body go the exact way, and no more than that."""
    kept: list[Any] = []
    _tensorjson.borrow(b'{"a":[1]}', kept.append)
    assert read(b'{"a":[1]}') is None
    assert read(b'{"a":[1]}') == [1.0]
    assert kept[0]["a"][0] == 1


def test_an_exception_does_not_keep_the_document() -> None:
    """After a refusal from inside, the parser can be used again while the exception is still alive."""

    def use(document: Any) -> None:
        raise InferenceFailed(str(document["a"][0]))

    with pytest.raises(InferenceFailed, match="7"):
        _tensorjson.borrow(b'{"a":[7]}', use)
    assert read(b'{"a":[1]}') == [1.0]


def test_the_parser_of_a_large_body_is_dropped() -> None:
    """A parser keeps the buffers of its largest body, so it does not outlive a large one."""
    read(b'{"a":[1]}')
    kept = _tensorjson._parsers.parser
    read(b'{"a":[1]}')
    assert _tensorjson._parsers.parser is kept
    assert sys.getrefcount(kept) > 1
    read(b'{"a":[1]' + b" " * (5 << 20) + b"}")
    assert _tensorjson._parsers.parser is None


def test_too_many_values_are_refused_before_they_are_read() -> None:
    """The commas are counted first."""
    _tensorjson.check_size(b"[1,2,3,4]", 4)
    with pytest.raises(BodyTooLarge, match="more than the limit of 3 values"):
        _tensorjson.check_size(b"[1,2,3,4,5]", 3)


def test_too_many_lists_are_refused() -> None:
    """Lists that are to become Python's have a limit of their own."""
    _tensorjson.check_lists(b"[[1],[2]]", 12)
    with pytest.raises(BodyTooLarge, match="more than 2 lists"):
        _tensorjson.check_lists(b"[[1],[2]]", 8)


def test_texts_are_counted_before_they_are_read() -> None:
    """As many texts as may be are taken, one more is not; quotes within a text make none."""
    _tensorjson.check_lists(b"[%b]" % (b'"a",' * 65_536), 1 << 21)
    _tensorjson.check_lists(b'["a","%b"]' % (b'\\"' * 200_000), 1 << 21)
    with pytest.raises(BodyTooLarge, match="more than 65536 texts"):
        _tensorjson.check_lists(b"[%b]" % (b'"a",' * 65_537), 1 << 21)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (np.array([0.1, 1e30], np.float32), b"[0.1,1e+30]"),
        (np.array([0.1], np.float16), b"[0.099975586]"),
        (np.arange(6, dtype=np.int16).reshape(2, 3).T, b"[[0,3],[1,4],[2,5]]"),
        (np.array(2.5, np.float32), b"2.5"),
        (np.array(np.nan), b"NaN"),
        (np.array([[1, np.nan], [-np.inf, np.inf]], np.float32), b"[[1.0,NaN],[-Infinity,Infinity]]"),
        (np.array(["a", '"\n\x01é'], object), '["a","\\"\\n\\u0001é"]'.encode()),
        (np.array(["null", "NaN"]), b'["null","NaN"]'),
        (np.array([b"a", b"\xff"], object), b'["a",{"b64":"/w=="}]'),
        (np.zeros((2, 0)), b"[[],[]]"),
        (np.array([True, False]), b"[true,false]"),
    ],
)
def test_tensors_are_written(tensor: np.ndarray, text: bytes) -> None:
    """Every layout, rank and kind of tensor has its JSON text."""
    assert _tensorjson.dump(tensor) == text


def test_binary_strings_are_base64() -> None:
    """With `binary`, every string is written in base64, whatever the rank."""
    assert _tensorjson.dump(np.array([["hi"], [b"\0"]], object), binary=True) == b'[[{"b64":"aGk="}],[{"b64":"AA=="}]]'
    assert _tensorjson.dump(np.array("hi", object), binary=True) == b'{"b64":"aGk="}'


@pytest.mark.parametrize("tensor", [np.array([1j]), np.array(["\ud800"], object), np.array([object()])])
def test_what_json_cannot_hold_is_the_models_failure(tensor: np.ndarray) -> None:
    """An output without a JSON form fails the request, and says which dtype it had."""
    with pytest.raises(InferenceFailed, match=f"dtype {tensor.dtype} cannot be written"):
        _tensorjson.dump(tensor)
