"""Tensors and JSON text, fast: numeric lists in through simdjson, arrays out through orjson.

Only what is exactly right takes the way in: a list that is no rectangle of plain numbers, and a number that the dtype
cannot hold, come back as None, for a slower exact path to judge.
"""

import threading
from collections.abc import Callable
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
_LISTS = 64
"""A tensor of up to so many lists is measured list by list; a larger one is proven by the body's skeleton."""
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


def too_many(elements: int) -> BodyTooLarge:
    """The refusal of a body with more values than that."""
    return BodyTooLarge(f"the body holds more than the limit of {elements} values")


def numbers(array: Any, dtype: np.dtype) -> Tensor | None:
    """A simdjson array of numbers as a tensor, or None; the body must then still pass `is_rectangular`."""
    shape = _first_lengths(array)
    size = prod(shape)
    kind = "d" if dtype.kind == "f" else ("u" if dtype == np.uint64 else "i") if dtype.kind in "iu" else ""
    if not size or not kind or not _lengths_agree(array, shape):
        return None
    try:
        buffer = array.as_buffer(of_type=kind)
    except (TypeError, ValueError):
        return None  # not a number, or not of that kind
    wide = np.frombuffer(buffer, f"{kind.replace('d', 'f')}8")
    return _narrow(wide, dtype, shape) if len(wide) == size else None


def _first_lengths(array: Any) -> list[int]:
    lengths = []
    while isinstance(array, simdjson.Array):
        length = len(array)
        lengths.append(length)
        array = array[0] if length else None
    return lengths


def _lengths_agree(array: Any, shape: list[int]) -> bool:
    """Whether all lists on a level have the same length, unless there are too many to look at."""
    if prod(shape[:-1]) > _LISTS:
        return True
    level = [array]
    for length in shape[1:]:
        level = [child for parent in level for child in parent]
        for child in level:
            if not isinstance(child, simdjson.Array) or len(child) != length:
                return False
    return True


@np.errstate(over="ignore")
def _narrow(wide: Tensor, dtype: np.dtype, shape: list[int]) -> Tensor | None:
    """SPEC: a float beyond its dtype becomes an infinity; an integer must fit."""
    tensor = wide.astype(dtype)
    if dtype.kind in "iu" and dtype != wide.dtype and (tensor != wide).any():
        return None
    return tensor.reshape(shape)


def is_rectangular(body: bytes, tensors: list[Tensor], text: Callable[[], bytes]) -> bool:
    """Whether the body holds the lists of those tensors and no others, each as long as the tensor's shape says.

    simdjson flattens ragged lists without a word, so this must be asked of everything that `numbers` made.
    `text` is the body that is expected, with `skeleton(shape)` in the place of each tensor.
    """
    lists = 0
    for tensor in tensors:
        inner = prod(tensor.shape[:-1])
        if inner > _LISTS:
            return body.translate(None, _NUMBER_BYTES) == text().translate(None, _NUMBER_BYTES)
        lists += sum(prod(tensor.shape[:level]) for level in range(tensor.ndim))
    # PERF: 0.3 us for 10 KB; the skeleton of the same body takes 3 us. The lengths agree already, so that counting
    # the brackets is enough to know that no number is a list.
    at = -1
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
    """The tensor as JSON text; a float's is the shortest that reads back as the same value of its dtype.

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


def _text(item: str | bytes, binary: bool) -> Any:
    data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
    if not binary:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": pybase64.b64encode(data).decode("ascii")}
