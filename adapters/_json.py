"""JSON as RapidJSON reads it, with its error texts and byte offsets.

Beyond strict JSON it takes the tokens NaN, -NaN, Inf, -Inf, Infinity and -Infinity, keeps the first of duplicate keys,
skips a byte-order mark, ignores what follows the first value and does not insist on UTF-8 in strings.
A C scanner reads what it reads alike; anything else goes through a machine that does not recurse.
Source: RapidJSON 1.1.0, include/rapidjson/reader.h (iterative parser with NaNAndInf and StopWhenDone).
"""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from math import isinf
from typing import Any

from adapters._patterns import compiled
from gateway.errors import MalformedBody

Value = Any
"""None, bool, int, float, str, list, dict; a string that is not UTF-8 is `bytes`."""

_MACHINE_STEPS = 100_000
"""Values that the machine reads one by one before it gives up: about 0.2 s' work, of which a body of 1 MiB has more."""

_SURROGATE = re.compile(
    rb"\\\\u[dD]|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""An escaped surrogate that may have lost its partner, or what looks like one behind an escaped backslash."""
_WINDOW = 1 << 20
_LONGEST_PAIR = 12


def parse(body: bytes) -> Value:
    """The first JSON value of the body; raises MalformedBody."""
    if not body:
        raise MalformedBody("JSON Parse error: The document is empty")
    reason = "JSON Parse error: too many values for the exact parser"
    if not _may_hold_lone_surrogates(body):
        try:
            return _SCANNER.raw_decode(body.decode().removeprefix("\ufeff").lstrip(" \t\r\n"))[0]
        except json.JSONDecodeError as error:
            reason = f"JSON Parse error: {error.msg} at character: {error.pos}"
        except RecursionError:
            reason = "JSON Parse error: nested too deeply"
        except UnicodeDecodeError as error:
            reason = f"JSON Parse error: Invalid encoding in string. at offset: {error.start}"
        except ValueError:
            pass  # a number that the machine must judge
    value = _read(body, 3 if body.startswith(b"\xef\xbb\xbf") else 0)
    if value is _UNFINISHED:
        raise MalformedBody(reason)
    return value


def _may_hold_lone_surrogates(body: bytes) -> bool:
    if b"\\u" not in body:
        return False
    # PERF: a search holds the interpreter's lock, for half a second in 64 MB; between windows others get their turn.
    for at in range(0, len(body), _WINDOW):
        found = _SURROGATE.search(body, at, at + _WINDOW + _LONGEST_PAIR)
        if found and found.start() < at + _WINDOW:
            return True
    return False


def _float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError
    return value


def _int(text: str) -> int:
    if len(text) > 300:
        raise ValueError
    return int(text)


def _first_wins(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else dict(reversed(pairs))


_SCANNER = json.JSONDecoder(object_pairs_hook=_first_wins, parse_float=_float, parse_int=_int)

_UNFINISHED = object()
_SPACE = rb"[ \t\r\n]*+"
_SMALL_NUMBER = (
    rb"-?+(?:NaN|Inf(?:inity)?+|(?:0|[1-9][0-9]{0,99}+)(?:\.[0-9]++)?+(?:[eE](?:-[0-9]++|\+?+[0-9]{1,2}+))?+)"
)
"""A number that cannot overflow a double."""
_NUMBERS = compiled(rb"\[%b(?:%b%b,%b)*+%b%b\]" % (_SPACE, _SMALL_NUMBER, _SPACE, _SPACE, _SMALL_NUMBER, _SPACE))
_PLAIN_STRING = rb'"[^"\\\x00-\x1f]*+"'
_STRINGS = compiled(rb"\[%b(?:%b%b,%b)*+%b%b\]" % (_SPACE, _PLAIN_STRING, _SPACE, _SPACE, _PLAIN_STRING, _SPACE))
_EMPTY = compiled(rb"\[%b\]|\{%b\}" % (_SPACE, _SPACE))
_SKIP = compiled(_SPACE)
_NUMBER = compiled(
    rb"-?+(?:(?P<constant>NaN|Inf(?:inity)?+)|(?:0|[1-9][0-9]*+)(?P<fraction>\.[0-9]++)?+(?P<exponent>[eE][+-]?+[0-9]++)?+)"
)
_BROKEN_NUMBER = compiled(rb"-?+(?:Na?+|In?+)?+")
_BROKEN_INFINITY = compiled(rb"i(?:n(?:i(?:t)?+)?+)?+")
_STRING = compiled(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)")
_LITERALS: dict[bytes, tuple[bytes, Value]] = {b"t": (b"true", True), b"f": (b"false", False), b"n": (b"null", None)}


def _read(body: bytes, at: int) -> Value:
    """The value that starts at `at`, or _UNFINISHED when it holds too many parts."""
    stack: list[Any] = []
    keys: list[str | bytes] = []
    for _ in range(_MACHINE_STEPS):
        at = _skip(body, at)
        opener = body[at : at + 1]
        if opener in (b"[", b"{"):
            value, end = _flat(body, at)
            if not end:
                stack.append([] if opener == b"[" else {})
                at += 1
                if opener == b"{":
                    key, at = _key(body, at)
                    keys.append(key)
                continue
            at = end
        else:
            value, at = _scalar(body, at, opener, bool(stack))

        # Handing the value up, through every container that ends here...
        while stack:
            at = _skip(body, at)
            parent, mark = stack[-1], body[at : at + 1]
            if isinstance(parent, list):
                parent.append(value)
                closer, missing = b"]", "Missing a comma or ']' after an array element."
            else:
                parent.setdefault(keys[-1], value)
                closer, missing = b"}", "Missing a comma or '}' after an object member."
            at += 1
            if mark == b"," and closer == b"}":
                keys[-1], at = _key(body, at)
            elif mark == closer:
                value = stack.pop()
                if closer == b"}":
                    keys.pop()
                continue
            elif mark != b",":
                raise _error(missing, at - 1)
            break
        else:
            return value
    return _UNFINISHED


def _error(text: str, offset: int) -> MalformedBody:
    return MalformedBody(f"JSON Parse error: {text} at offset: {offset}")


def _skip(body: bytes, at: int) -> int:
    match = _SKIP.match(body, at)
    return match.end() if match else at


def _flat(body: bytes, at: int) -> tuple[Value, int]:
    """A container that holds only small numbers, only plain strings, or nothing; an end of 0 for any other.

    PERF: one C call for a whole row.
    """
    if match := _NUMBERS.match(body, at):
        text = match[0]
        if b"Inf" in text:
            text = text.replace(b"Infinity", b"Inf").replace(b"Inf", b"Infinity")
        return json.loads(text.replace(b"-NaN", b"NaN").decode("ascii")), match.end()
    if match := _EMPTY.match(body, at):
        return ([] if body[at] == 0x5B else {}), match.end()
    if match := _STRINGS.match(body, at):
        try:
            return json.loads(match[0].decode()), match.end()
        except UnicodeDecodeError:
            return None, 0
    return None, 0


def _key(body: bytes, at: int) -> tuple[str | bytes, int]:
    at = _skip(body, at)
    if body[at : at + 1] != b'"':
        raise _error("Missing a name for object member.", at)
    key, at = _string(body, at)
    at = _skip(body, at)
    if body[at : at + 1] != b":":
        raise _error("Missing a colon after a name of object member.", at)
    return key, at + 1


def _scalar(body: bytes, at: int, opener: bytes, nested: bool) -> tuple[Value, int]:
    if opener == b'"':
        return _string(body, at)
    if opener in _LITERALS:
        word, value = _LITERALS[opener]
        if body.startswith(word, at):
            return value, at + len(word)
        matched = next(n for n in range(1, len(word)) if body[at + n : at + n + 1] != word[n : n + 1])
        raise _error("Invalid value.", at + matched)
    if opener in (b"", b"\0") and not nested:
        raise _error("The document is empty.", at)
    return _number(body, at)


def _number(body: bytes, at: int) -> tuple[int | float, int]:
    match = _NUMBER.match(body, at)
    if match is None:
        broken = _BROKEN_NUMBER.match(body, at)
        raise _error("Invalid value.", broken.end() if broken else at)
    end, after = match.end(), body[match.end() : match.end() + 1]
    if match["constant"]:
        if broken := _BROKEN_INFINITY.match(body, end):
            raise _error("Invalid value.", broken.end())
        return float(match[0]), end
    if after == b"." and not (match["fraction"] or match["exponent"]):
        raise _error("Miss fraction part in number.", end + 1)
    if after in (b"e", b"E") and not match["exponent"]:
        raise _error("Miss exponent in number.", end + 1 + (body[end + 1 : end + 2] in (b"+", b"-")))
    value = float(match[0])
    if isinf(value):
        raise _error("Number too big to be stored in double.", at)
    return (value if match["fraction"] or match["exponent"] else int(match[0])), end


def _string(body: bytes, at: int) -> tuple[str | bytes, int]:
    match = _STRING.match(body, at)
    raw = match[0] if match else b'"'
    if b"\\u" in raw:
        _refuse_lone_surrogates(raw, at)
    end = at + len(raw)
    closing = body[end : end + 1]
    if closing != b'"':
        if closing in (b"", b"\0"):
            raise _error("Missing a closing quotation mark in string.", end)
        if body.startswith(b"\\u", end):
            raise _error("Incorrect hex digit after \\u escape in string.", end)
        raise _error("Invalid escape character in string.", end)
    text = raw.decode("utf-8", "surrogateescape")
    value = scanstring(text + '"', 1)[0] if b"\\" in raw else text[1:]
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape"), end + 1
    return value, end + 1


def _refuse_lone_surrogates(raw: bytes, at: int) -> None:
    """SPEC: RapidJSON lets a lone low surrogate through as broken UTF-8; here it is refused like a lone high one."""
    high = None
    for escape in _ESCAPE.finditer(raw):
        unit = int(escape[1], 16) if escape[1] else 0
        follows = high is not None and escape.start() == high.end()
        if (high is not None and not (follows and 0xDC00 <= unit <= 0xDFFF)) or (
            high is None and 0xDC00 <= unit <= 0xDFFF
        ):
            wrong = high or escape
            raise _error("The surrogate pair in string is invalid.", at + wrong.start())
        high = escape if high is None and 0xD800 <= unit <= 0xDBFF else None
    if high is not None:
        raise _error("The surrogate pair in string is invalid.", at + high.start())
