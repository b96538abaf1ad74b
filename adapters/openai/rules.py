"""What one field may hold: each rule gives the value as it is passed on, or refuses it by name."""

import re
from collections.abc import Callable
from typing import Any

from adapters._excerpt import excerpt
from adapters.openai.errors import Refusal

Rule = Callable[[Any, str], Any]
"""Value and the field's name to the value."""

UNSUPPORTED, UNSUPPORTED_VALUE = "unsupported_parameter", "unsupported_value"
_STOPS = 4
_LONGEST_STOP = 1024
_MOST_BIASES = 1024
INT64 = 1 << 63
_SIZE = re.compile(r"[1-9]\d{0,4}x[1-9]\d{0,4}")


def wrong(name: str, expected: str, value: Any, code: str = "invalid_value") -> Refusal:
    """The refusal of a value."""
    shown = excerpt(value) if isinstance(value, str | int | float) else _kind(value)
    return Refusal(f"{name}: expected {expected}, got {shown}", name, code)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "a list" if isinstance(value, list) else "an object"


def whole(least: int, most: int) -> Rule:
    """A whole number in that range; 5.0 is one, "5" and true are not."""

    def rule(value: Any, name: str) -> int:
        expected = f"a whole number from {least} to {most}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(name, expected, value, "invalid_type")
        if value != value // 1:
            raise wrong(name, expected, value, "invalid_type")
        if not least <= value <= most:
            raise wrong(name, expected, value)
        return int(value)

    return rule


def number(least: float, most: float) -> Rule:
    """A number in that range."""

    def rule(value: Any, name: str) -> float:
        expected = f"a number from {least:g} to {most:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(name, expected, value, "invalid_type")
        if not least <= value <= most:
            raise wrong(name, expected, value)
        return float(value)

    return rule


def boolean(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(name, "true or false", value, "invalid_type")
    return value


def text(value: Any, name: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise wrong(name, "a string", value, "invalid_type")
    return value


def table(value: Any, name: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise wrong(name, "an object", value, "invalid_type")
    return value


def one_of(*words: str) -> Rule:
    """One of these words; others are not supported here."""

    def rule(value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in words:
            raise wrong(name, " or ".join(map(repr, words)), value, UNSUPPORTED_VALUE)
        return value

    return rule


def size(value: Any, name: str) -> str:
    """Width and height, as 512x512, or auto."""
    if value != "auto" and not (isinstance(value, str) and _SIZE.fullmatch(value)):
        raise wrong(name, "WIDTHxHEIGHT, such as 512x512, or auto", value)
    return value  # type: ignore[no-any-return]


def refused(value: Any, name: str) -> Any:
    """Nothing but null."""
    raise Refusal(f"{name} is not supported here", name, UNSUPPORTED)


def false_only(value: Any, name: str) -> bool:
    """False: what true asks for is not done here."""
    if boolean(value, name):
        raise Refusal(f"{name}: only false is supported here", name, UNSUPPORTED_VALUE)
    return value  # type: ignore[no-any-return]


def text_modality(value: Any, name: str) -> list[str]:
    """The list of the one modality that there is."""
    if value != ["text"]:
        raise Refusal(f"{name}: only ['text'] is supported here", name, UNSUPPORTED_VALUE)
    return ["text"]


def stops(value: Any, name: str) -> list[str]:
    """One string or up to four, none of them empty."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise wrong(name, "a string or a list of strings", value, "invalid_type")
    if len(given) > _STOPS or not all(0 < len(one) <= _LONGEST_STOP for one in given):
        raise Refusal(f"{name}: expected at most {_STOPS} strings of 1 to {_LONGEST_STOP} characters", name,
                      "invalid_value")  # fmt: skip
    return given


def biases(value: Any, name: str) -> dict[str, float]:
    """Token ids, as JSON's keys are strings, each with a number from -100 to 100."""
    given = table(value, name)
    if len(given) > _MOST_BIASES:
        raise Refusal(f"{name}: expected at most {_MOST_BIASES} tokens, got {len(given)}", name, "invalid_value")
    bias = number(-100, 100)
    for token, amount in given.items():
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            raise wrong(name, "token ids as keys", token)
        bias(amount, name)
    return given


def token_ids(value: Any, name: str) -> list[int]:
    """A list of token ids."""
    token = whole(0, INT64 - 1)
    if not isinstance(value, list):
        raise wrong(name, "a list of token ids", value, "invalid_type")
    if all(type(one) is int for one in value) and min(value, default=0) >= 0:
        return value
    return [token(one, name) for one in value]


def stream_options(value: Any, name: str) -> dict[str, Any]:
    """`include_usage`; `include_obfuscation` is read and not followed."""
    given = table(value, name)
    for key in ("include_usage", "include_obfuscation"):
        if given.get(key) is not None:
            boolean(given[key], f"{name}.{key}")
    return given
