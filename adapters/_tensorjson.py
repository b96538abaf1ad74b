"""Tensors and JSON text, fast: numeric lists in through simdjson, arrays out through orjson.

Only what is exactly right takes the way in: a list that is no rectangle of plain numbers, and a number that the dtype
cannot hold, come back as None, for a slower exact path to judge.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import count
from math import prod
from typing import Any, Literal, TypeVar

import numpy as np
import orjson
import pybase64
import simdjson

from gateway.errors import BodyTooLarge, InferenceFailed
from gateway.types import Tensor

NonFinite = Literal["token", "null", "string"]
"""How NaN and infinities are written: as the tokens NaN, Infinity and -Infinity, as null, or as quoted tokens."""

R = TypeVar("R")

_KEEP_BYTES = 4 << 20
"""A parser keeps buffers of about twice its largest body; after a larger one it is dropped."""
_ELEMENTS_PER_LIST = 16
_LISTS_ALWAYS = 1 << 16
_ELEMENTS_PER_TEXT = 32
_TEXTS_ALWAYS = 1 << 16
_NUMBER_BYTES = b"0123456789+-.eE \t\r\n"
_TOKENS = {"token": (b"NaN", b"Infinity", b"-Infinity"), "string": (b'"NaN"', b'"Infinity"', b'"-Infinity"')}


# In...


class _Parsers(threading.local):
    """One parser a thread: it holds the document that it parsed last."""

    parser: simdjson.Parser | None = None


_parsers = _Parsers()


def borrow(body: bytes, use: Callable[[Any], R | None]) -> R | None:
    """What `use` makes of the parsed body, of which it must keep no part; None if it raises KeyError or ValueError.

    Also None for what is not strict JSON, is nested deeper than 1,023, or has a number that a double cannot hold.
    """
    parser = _parsers.parser or simdjson.Parser()
    document = None
    keep = len(body) <= _KEEP_BYTES
    try:
        document = parser.parse(body)
        return use(document)
    except (KeyError, ValueError):
        return None
    except RuntimeError:
        keep = False  # it may still be referred to, and then refuses to parse
        return None
    finally:
        document = None
        _parsers.parser = parser if keep else None


def check_size(body: bytes, elements: int) -> None:
    """Raise BodyTooLarge, before anything is built, if the body may hold more values than that."""
    # Every value but the first of its list follows a comma, so a short body cannot hold too many.
    if len(body) > 2 * elements and body.count(b",") > elements:
        raise too_many(elements)


def check_lists(body: bytes, elements: int) -> None:
    """Raise BodyTooLarge if the body holds too many lists, objects and texts to be made into Python's."""
    # PERF: such a list costs ten times as much as the number in it, and the parser makes all of them without a pause:
    # a million holds the interpreter for 0.2 s.
    most = max(elements // _ELEMENTS_PER_LIST, min(elements // 4, _LISTS_ALWAYS))
    if len(body) > most and body.count(b"[") + body.count(b"{") > most:
        raise BodyTooLarge(f"the body is not a rectangle of numbers, and holds more than {most} lists and objects")
    # PERF: texts cost little here, but much on their way to a model, where the interpreter's lock is held.
    most = most_texts(elements)
    if len(body) > 3 * most and body.count(b'"') > 2 * most and body.count(b'"') - body.count(b'\\"') > 2 * most:
        raise BodyTooLarge(f"the body holds more than {most} texts")


def most_texts(elements: int) -> int:
    """How many texts a request may hold that may hold so many values."""
    return max(elements // _ELEMENTS_PER_TEXT, min(elements, _TEXTS_ALWAYS))


def too_many(elements: int) -> BodyTooLarge:
    """The refusal of a body with more values than that."""
    return BodyTooLarge(f"the body holds more than the limit of {elements} values")


def numbers(array: Any, dtype: np.dtype, body: bytes) -> Tensor | None:
    """A simdjson array of numbers in that body as a tensor, or None; the body must then still be `is_rectangular`."""
    wide, shape = _wide(dtype), _shape_of(array, body)
    if wide is None or shape is None:
        return None
    try:
        flat = np.frombuffer(array.as_buffer(of_type=wide[0]), wide[1])
    except (TypeError, ValueError):
        return None  # not a number, or not of that kind
    return _narrow(flat, dtype, shape) if len(flat) == prod(shape) else None


def any_numbers(array: Any, body: bytes) -> Tensor | None:
    """As `numbers`, where it is the values that say the dtype: 64-bit integers if they all are, else float64."""
    for dtype in (np.dtype(np.int64), np.dtype(np.uint64)):
        if (tensor := numbers(array, dtype, body)) is not None:
            return tensor
    tensor = numbers(array, np.dtype(np.float64), body)
    # Beyond 2**53 it could be an integer that has lost digits.
    return tensor if tensor is not None and np.abs(tensor).max() < 2.0**53 else None


@cache
def _wide(dtype: np.dtype) -> tuple[Literal["d", "i", "u"], np.dtype] | None:
    """The 64-bit kind that holds every value of the dtype exactly."""
    if dtype.kind == "f":
        return "d", np.dtype(np.float64)
    if dtype == np.uint64:
        return "u", dtype
    return ("i", np.dtype(np.int64)) if dtype.kind in "iu" else None


def _shape_of(array: Any, body: bytes) -> list[int] | None:
    """The lists' lengths, level by level; None where one is empty, or those of a level differ.

    Of a level with too many lists, and of those below it, only the first is looked at.
    """
    level, shape = [array], []
    while True:
        first = level[0]
        length = len(first)
        if not length or (len(level) > 1 and not _alike(level, length)):
            return None
        shape.append(length)
        if not isinstance(first[0], simdjson.Array):
            return shape
        if not _few_lists(shape, body):
            level = [first[0]]
        elif len(level) == 1:
            level = list(first)
        else:
            level = [child for parent in level for child in parent]


def _alike(level: Sequence[Any], length: int) -> bool:
    """Whether all of them are lists of that length."""
    return all(isinstance(child, simdjson.Array) and len(child) == length for child in level)


def _few_lists(outer: Sequence[int], body: bytes) -> bool:
    """PERF: 0.2 us for a list that is measured, 4 us for 8 KB of skeleton."""
    lists = prod(outer)
    return lists <= 64 or lists <= 64 + len(body) // 256


@np.errstate(over="ignore")
def _narrow(flat: Tensor, dtype: np.dtype, shape: list[int]) -> Tensor | None:
    """SPEC: a float beyond its dtype becomes an infinity; an integer must fit."""
    tensor = flat.astype(dtype)
    if dtype.kind in "iu" and dtype != flat.dtype and (tensor != flat).any():
        return None
    return tensor.reshape(shape)


def is_rectangular(body: bytes, shapes: Iterable[tuple[int, ...]], text: Callable[[], bytes]) -> bool:
    """Whether the body holds the lists of tensors of those shapes and no others, each as long as its shape says.

    simdjson flattens ragged lists without a word, so this must be asked of everything that `numbers` made.
    `text` is the body that is expected, with `skeleton(shape)` in the place of each tensor.
    """
    at = -1
    for shape in shapes:
        outer = shape[:-1]
        if not _few_lists(outer, body):
            return body.translate(None, _NUMBER_BYTES) == text().translate(None, _NUMBER_BYTES)
        # The lengths agree already: where there are no more brackets than lists, no number is itself a list.
        lists = count = 1
        for length in outer:
            count *= length
            lists += count
        for _ in range(lists):
            at = body.find(b"[", at + 1)
    return body.find(b"[", at + 1) < 0


def skeleton(shape: tuple[int, ...]) -> bytes:
    """The brackets and commas of a tensor's JSON text."""
    text = b"[" + b"," * (shape[-1] - 1) + b"]"
    for length in reversed(shape[:-1]):
        text = b"[" + b",".join([text] * length) + b"]"
    return text


# Out...


def dump(tensor: Tensor, non_finite: NonFinite = "token", binary: bool = False) -> bytes:
    """The tensor as JSON text; a float's is the shortest that reads back as the same float64 or float32.

    Strings that are not UTF-8, and with `binary` all of them, are written as {"b64": "..."}.
    """
    kind = tensor.dtype.kind
    try:
        if kind in "OUS":
            return orjson.dumps(texts(tensor, binary))
        if tensor.ndim == 0:
            return dump(tensor.reshape(1), non_finite)[1:-1]
        if not tensor.flags.c_contiguous:
            tensor = np.ascontiguousarray(tensor)
        text = orjson.dumps(tensor, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        raise InferenceFailed(f"an output of dtype {tensor.dtype} cannot be written as JSON") from None
    if kind == "f" and non_finite != "null" and b"null" in text:
        return _with_tokens(text, tensor, _TOKENS[non_finite])
    return text


def is_finite(tensor: Tensor) -> bool:
    """Whether orjson writes all of the tensor's values as they are."""
    return tensor.dtype.kind != "f" or bool(np.isfinite(tensor).all())


def _with_tokens(text: bytes, tensor: Tensor, tokens: tuple[bytes, bytes, bytes]) -> bytes:
    """orjson writes null for every value that is not finite, and only for those: each becomes its own token."""
    nan, infinity, minus_infinity = tokens
    flat = tensor.ravel()
    lost = flat[~np.isfinite(flat)]
    words = [nan if value != value else infinity if value > 0 else minus_infinity for value in lost.tolist()]
    parts = text.split(b"null")
    return b"".join(part for pair in zip(parts, [*words, b""], strict=True) for part in pair)


def texts(tensor: Tensor, binary: bool = False) -> Any:
    """A string tensor as nested lists of what orjson can write; see `dump`."""
    if not binary and (tensor.dtype.kind == "U" or set(map(type, tensor.ravel().tolist())) <= {str}):
        return tensor.tolist()
    texts = np.empty(tensor.shape, object)
    for place, item in zip(count(), tensor.ravel().tolist(), strict=False):
        texts.flat[place] = _text(item, binary)
    return texts.tolist()


def _text(item: Any, binary: bool) -> Any:
    if not isinstance(item, str | bytes):
        return item
    data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
    if not binary:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": pybase64.b64encode(data).decode("ascii")}
