"""What to write instead of what a configuration says wrongly: the choices there are, and the one that was meant."""

import re
import types
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from gateway.serviceconfig import DURATION_PATTERN, NAME_PATTERN, VERSION_PATTERN

MOST_SHOWN = 40

_WORDS = {
    NAME_PATTERN: "letters, digits, '.', '_' and '-', at most 128, a letter or digit first",
    DURATION_PATTERN: 'a duration such as "90s", "15m", "8h" or "7d", or "" for no end',
    VERSION_PATTERN: 'three numbers, such as "1.0.0"',
}
"""What people are told instead of a regular expression."""

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_CHOICE = re.compile(r"Invalid enum value '(.*)'")


def hinted(reason: str, kind: Any, path: str) -> str:
    """The reason that msgspec gives, with what it should have been; `path` is where, as `.services.x.aliases[0]`."""
    if "matching regex" in reason:
        return in_words(reason)
    if found := _UNKNOWN.fullmatch(reason):
        return reason + _choices(found[1], _fields(_at(kind, path)))
    if found := _CHOICE.fullmatch(reason):
        return reason + _choices(found[1], _literals(_at(kind, path)))
    return reason


def in_words(reason: str) -> str:
    """The reason that msgspec gives, where it has a regular expression with what that stands for."""
    if "matching regex" in reason and "[KMGT]" in reason:
        return 'Expected a number of bytes, or a text such as "4GiB" or "500 MB"'
    for pattern, words in _WORDS.items():
        if reason.endswith(f" matching regex {pattern!r}"):
            return f"Expected {words}"
    return reason


def meant(given: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` where one of them is close."""
    close = get_close_matches(given, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _choices(given: str, known: list[str]) -> str:
    if not known:
        return ""
    shown = ", ".join(known[:MOST_SHOWN])
    likely = meant(given, known)
    return f"{likely} There are: {shown}" if likely else f"; there are: {shown}"


def _at(kind: Any, path: str) -> list[Any]:
    """The types that may stand at the path."""
    kinds = _members(kind)
    for step in re.findall(r"\.([^.\[]+)|(\[\d+\])", path):
        kinds = [inner for one in kinds for inner in _below(one, step[0])]
    return kinds


def _below(kind: Any, name: str) -> list[Any]:
    """The types of a field, a value or an item."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _members(get_type_hints(kind, include_extras=True).get(name))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return _members(arguments[1])
    if origin in (tuple, list):
        return _members(arguments[0])
    return []


def _members(kind: Any) -> list[Any]:
    """The type, or those that a union or an annotation is made of."""
    if hasattr(kind, "__metadata__"):
        return _members(kind.__origin__)
    if get_origin(kind) in (Union, types.UnionType):
        return [member for one in get_args(kind) for member in _members(one)]
    return [kind]


def _fields(kinds: list[Any]) -> list[str]:
    return [
        field.encode_name
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for field in msgspec.structs.fields(kind)
    ]


def _literals(kinds: list[Any]) -> list[str]:
    return [str(one) for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
