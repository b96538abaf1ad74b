"""JSON text to Python values and back, as Python's own json reads and writes it, which Seldon's wrapper uses."""

import json
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
import orjson
import pybase64

from adapters._tensorjson import check_lists, check_size
from gateway.errors import InferenceFailed, MalformedBody
from gateway.interfaces import DecodeLimits

NonFinite = Literal["token", "null"]
"""How NaN and infinities are written: as Python's json does (NaN, Infinity), or as null for strict readers."""

_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_DEPTH_WRITTEN = 250
"""orjson's own bound is 254."""


def parse(body: bytes, limits: DecodeLimits, what: str = "Can't find JSON in data") -> Any:
    """The value; NaN, infinities, a byte-order mark and whole numbers of any size are taken.

    Raises MalformedBody, whose text begins with `what`, and BodyTooLarge.
    """
    check_size(body, limits.elements)
    check_lists(body, limits.elements)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _leniently(body, what)
    if deeper_than(value, min(limits.depth, _DEPTH_WRITTEN), body):
        raise MalformedBody(f"{what}: it is nested more than {limits.depth} deep")
    return value


def _leniently(body: bytes, what: str) -> Any:
    try:
        value = json.loads(body.decode("utf-8-sig"))
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"{what}: it is not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise MalformedBody(f"{what}: it has half a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise MalformedBody(f"{what}: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError):
        raise MalformedBody(f"{what}: a number is too long, or it is nested too deeply") from None
    return value


def deeper_than(value: Any, depth: int, text: bytes) -> bool:
    """Whether lists and objects are nested deeper than that; `text` is the value as JSON."""
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    level = [value]
    for _ in range(depth):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return any(isinstance(one, list | dict) for one in level)


def _children(value: Any) -> list[Any]:
    inside = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    return [one for one in inside if isinstance(one, list | dict)]


class Writer:
    """Writes JSON as the configuration wants it."""

    def __init__(self, non_finite: NonFinite, ascii_only: bool) -> None:
        self._non_finite = non_finite
        self.finish: Callable[[bytes], bytes] = _escaped if ascii_only else bytes
        """What every body goes through last."""

    def dumps(self, value: Any) -> bytes:
        """The value as JSON in UTF-8; numpy's scalars and arrays, bytes and sets of names are written too.

        Raises InferenceFailed for what cannot be written.
        """
        try:
            text = orjson.dumps(value, _plain, orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        except orjson.JSONEncodeError:
            return self._exactly(value)
        if self._non_finite == "token" and b"null" in text:
            return self._exactly(value)  # orjson writes null for NaN
        return text

    def _exactly(self, value: Any) -> bytes:
        try:
            text = json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))
            return text.encode("utf-8")
        except UnicodeEncodeError:
            return json.dumps(value, default=_plain, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InferenceFailed(f"the model's answer cannot be written as JSON: {error}") from None


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes | bytearray):
        return text_of(bytes(value))
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def text_of(data: bytes) -> str:
    """Bytes among texts: as they read in UTF-8, else in base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return pybase64.b64encode(data).decode("ascii")


def _escaped(text: bytes) -> bytes:
    """Everything beyond ASCII stands inside strings, so that it may be replaced by what JSON writes for it."""
    if text.isascii():
        return text
    return _NON_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text.decode()).encode("ascii")
