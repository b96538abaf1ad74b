"""The tools of a request, and the grammar that forces a call of one.

Each family of models writes them in its own way: hermes (Qwen, SmolLM and others) between tags, llama3 as one JSON
object, mistral as a list behind a token.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from llguidance import LLMatcher
from msgspec import Struct

from backends.generate.grammar import WHITESPACE, schema_text
from backends.generate.settings import refused
from backends.generate.vocabulary import Vocabulary

Family = Literal["hermes", "llama3", "mistral"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
LIST = "[TOOL_CALLS]"
PYTHON = "<|python_tag|>"
MAX_TOOLS = 128


class Tools(Struct, frozen=True):
    """The tools of a request, and whether one must be called."""

    family: Family
    names: frozenset[str]
    several: bool
    """More than one call is wanted."""
    forced: Literal["", "required", "named"] = ""
    grammar: str = ""


def family_of(template: str) -> Family | None:
    """The family whose calls the chat template writes."""
    if OPEN in template:
        return "hermes"
    if LIST in template:
        return "mistral"
    return "llama3" if PYTHON in template or '"parameters": ' in template else None


def shown_tokens(vocabulary: Vocabulary) -> frozenset[int]:
    """Control tokens that must be seen in the text, for they mark calls."""
    marks = (OPEN, CLOSE, LIST, PYTHON, "[ARGS]")
    return frozenset(token for mark in marks if (token := vocabulary.token_named(mark)) is not None)


def tools_of(parameters: Mapping[str, Any], family: Family | None, vocabulary: Vocabulary) -> Tools | None:
    """The request's tools, None where there are none to call. Raises InvalidTensor."""
    given, choice = parameters.get("tools"), parameters.get("tool_choice")
    if given is None:
        if choice not in (None, "none"):
            raise refused("tool_choice", "there are no tools")
        return None
    if not isinstance(given, list) or not 0 < len(given) <= MAX_TOOLS:
        raise refused("tools", f"expected a list of 1 to {MAX_TOOLS} tools")
    if family is None:
        raise refused("tools", "this model knows no tools")
    functions = [_function(tool, f"tools[{place}]") for place, tool in enumerate(given)]
    named = _named(choice, functions)
    several = parameters.get("parallel_tool_calls") is not False
    if choice == "none":
        return None
    tools = Tools(family, frozenset(function["name"] for function in functions), several)
    if choice in (None, "auto"):
        return tools
    wanted = [function for function in functions if named in (None, function["name"])]
    grammar = _grammar(family, wanted, vocabulary)
    return Tools(family, tools.names, several, "named" if named else "required", grammar)


def _function(tool: Any, where: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise refused(where, "expected an object with type function and a function with a name")
    if not isinstance(function.get("parameters", {}), dict | None):
        raise refused(f"{where}.function.parameters", "expected a JSON schema")
    return function


def _named(choice: Any, functions: Sequence[dict[str, Any]]) -> str | None:
    if choice in (None, "none", "auto", "required"):
        return None
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if name not in [function["name"] for function in functions]:
        raise refused("tool_choice", "expected none, auto, required, or one of the tools")
    return str(name)


def _grammar(family: Family, functions: Sequence[dict[str, Any]], vocabulary: Vocabulary) -> str:
    """A grammar of exactly one call."""
    key = "parameters" if family == "llama3" else "arguments"
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": function["name"]}, key: function.get("parameters") or {"type": "object"}},
            "required": ["name", key],
            "additionalProperties": False,
        }
        for function in functions
    ]
    schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    schema["x-guidance"] = {"whitespace_pattern": WHITESPACE}
    before, after = {"hermes": (OPEN, CLOSE), "llama3": ("", ""), "mistral": (LIST, "")}[family]
    inner = "call" if family != "mistral" else '"[" call "]"'
    return LLMatcher.grammar_from_lark(
        f"start: {_mark(before, vocabulary)} WS? {inner} WS? {_mark(after, vocabulary)}\n"
        f"WS: /[ \\n]{{1,2}}/\ncall: %json {schema_text(schema)}\n"
        if before
        else f"start: call\ncall: %json {schema_text(schema)}\n"
    )


def _mark(text: str, vocabulary: Vocabulary) -> str:
    """The mark as its token, where it is a control token; else as text."""
    token = vocabulary.token_named(text)
    if not text:
        return ""
    return f"<[{token}]>" if token in vocabulary.special else json.dumps(text)
