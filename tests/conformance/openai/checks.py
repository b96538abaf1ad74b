"""What a case says of a JSON answer: paths into it, and comparisons."""

import json
import re
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

ABSENT = object()
_TYPES = {"str": str, "int": int, "list": list}
_STEP = re.compile(r"(\w+)|\[(\d+|\*)\]")


def at(document: Any, path: str) -> Any:
    """The value there; `[*]` gives a list of what lies behind it in each item."""
    steps = [found[1] or found[2] for found in _STEP.finditer(path)]
    return _walk(document, steps)


def _walk(value: Any, steps: list[str]) -> Any:
    for place, step in enumerate(steps):
        if step == "*":
            return [_walk(item, steps[place + 1 :]) for item in value]
        if isinstance(value, list):
            value = value[int(step)]
        else:
            value = value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def _usage_sum(usage: Json) -> bool:
    return bool(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"])


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and not isinstance(value, bool)


OPS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda value, wanted: bool(value == wanted),
    "type": _is,
    "ge": lambda value, wanted: bool(value >= wanted),
    "le": lambda value, wanted: bool(value <= wanted),
    "len": lambda value, wanted: len(value) == wanted,
    "min_len": lambda value, wanted: len(value) >= wanted,
    "in": lambda value, wanted: value in wanted,
    "re": lambda value, wanted: re.search(wanted, value) is not None,
    "falsy": lambda value, wanted: value is ABSENT or not value,
    "absent": lambda value, wanted: value is ABSENT or value is None,
    "contains": lambda value, wanted: wanted in value,
    "unique": lambda value, wanted: len(set(value)) == len(value),
    "all_eq": lambda value, wanted: all(one == wanted for one in value),
    "all_type": lambda value, wanted: all(_is(one, wanted) for one in value),
    "all_le": lambda value, wanted: all(one <= wanted for one in value),
    "all_le_list": lambda value, wanted: all(one is None or one <= wanted for one in value),
    "all_len_le": lambda value, wanted: all(len(one) <= wanted for one in value),
    "all_json": lambda value, wanted: all(isinstance(json.loads(one), dict) for one in value),
    "usage_sum": lambda value, wanted: _usage_sum(value),
    "emb_usage": lambda value, wanted: bool(value["prompt_tokens"] == value["total_tokens"] >= 1),
}


def compare(document: Json, path: str, op: str, wanted: Any) -> None:
    """Fails where the value does not compare so."""
    found = at(document, path)
    assert OPS[op](found, wanted), f"{path} is {found!r}: not {op} {wanted!r}"


def error(document: Json, wanted: Json) -> None:
    """The one error body, with what the case says of its members."""
    assert list(document) == ["error"]
    told = document["error"]
    assert sorted(told) == ["code", "message", "param", "type"]
    assert told["message"]
    assert not re.search(r"Traceback|\.py\b|/site-packages/", told["message"])
    for name, value in wanted.items():
        assert told[name] in (value if isinstance(value, list) else [value]), told


def valid(value: Any, schema: Json) -> bool:
    """Whether the value is as the schema says, of the few words that the cases use."""
    if "enum" in schema:
        return value in schema["enum"]
    if schema["type"] == "string":
        return isinstance(value, str) and len(value) <= schema.get("maxLength", len(value))
    if schema["type"] == "integer":
        return _is(value, "int") and bool(schema["minimum"] <= value <= schema["maximum"])
    members = schema.get("properties", {})
    return (
        isinstance(value, dict)
        and set(schema.get("required", ())) <= value.keys()
        and (schema.get("additionalProperties", True) or value.keys() <= members.keys())
        and all(valid(item, members[name]) for name, item in value.items() if name in members)
    )
