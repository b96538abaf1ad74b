"""`tools` and `tool_choice`: the functions that a model may ask its caller to call."""

import re
from collections.abc import Mapping
from typing import Any

from adapters.openai.errors import Refusal
from adapters.openai.rules import UNSUPPORTED, UNSUPPORTED_VALUE, table, wrong

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_MOST = 128
_WORDS = ("none", "auto", "required")


def tools(value: Any, name: str) -> list[dict[str, Any]]:
    """One to 128 functions."""
    if not isinstance(value, list):
        raise wrong(name, "a list of tools", value, "invalid_type")
    if not 1 <= len(value) <= _MOST:
        raise Refusal(f"{name}: expected 1 to {_MOST} tools, got {len(value)}", name, "invalid_value")
    for index, tool in enumerate(value):
        _check_tool(table(tool, f"{name}[{index}]"), f"{name}[{index}]")
    return value


def _check_tool(tool: dict[str, Any], where: str) -> None:
    if tool.get("type") != "function":
        raise wrong(f"{where}.type", "'function'", tool.get("type"), UNSUPPORTED_VALUE)
    function = table(tool.get("function"), f"{where}.function")
    if not isinstance(function.get("name"), str) or not _NAME.match(function["name"]):
        raise wrong(f"{where}.function.name", "1 to 64 letters, digits, _ or -", function.get("name"))
    for key, kind, expected in (
        ("description", str, "a string"),
        ("parameters", dict, "a JSON schema"),
        ("strict", bool, "true or false"),
    ):
        if function.get(key) is not None and not isinstance(function[key], kind):
            raise wrong(f"{where}.function.{key}", expected, function[key], "invalid_type")


def tool_choice(value: Any, name: str) -> str | dict[str, Any]:
    """A word, or the function that must be called."""
    if isinstance(value, str):
        if value not in _WORDS:
            raise wrong(name, f"{', '.join(map(repr, _WORDS))} or a function", value)
        return value
    given = table(value, name)
    if given.get("type") != "function":
        raise wrong(name, "the type 'function'", given.get("type"), UNSUPPORTED_VALUE)
    if not isinstance(given.get("function"), dict) or not isinstance(given["function"].get("name"), str):
        raise Refusal(f"{name}: expected the function's name", name, "invalid_value")
    return given


def named(choice: Any) -> str | None:
    """The function that must be called, if one is named."""
    return choice["function"]["name"] if isinstance(choice, dict) else None


def check(fields: Mapping[str, Any], able: bool) -> None:
    """The rules between the fields; `able` tells whether the model has learned to call."""
    given, choice = fields.get("tools"), fields.get("tool_choice")
    if given is None:
        if choice is not None:
            raise Refusal("tool_choice: allowed only with tools", "tool_choice", "invalid_value")
        return
    if not able:
        raise Refusal("tools: this model calls no functions", "tools", UNSUPPORTED)
    name = named(choice)
    if name is not None and name not in {tool["function"]["name"] for tool in given}:
        raise Refusal("tool_choice: no tool of that name is among the tools", "tool_choice", "invalid_value")
    wanted = fields.get("response_format", {}).get("type", "text")
    if wanted != "text" and choice != "none":
        raise Refusal("response_format: not supported together with tools", "response_format", UNSUPPORTED_VALUE)
