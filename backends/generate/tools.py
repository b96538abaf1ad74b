"""Tool calls in a model's text: found where the model makes them, forced where the caller wants one.

Each family of models writes them in its own way: hermes (Qwen, SmolLM and others) between tags, llama3 as one JSON
object, mistral as a list behind a token.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from llguidance import LLMatcher
from msgspec import Struct

from backends.generate.detokenize import held_back
from backends.generate.grammar import WHITESPACE, schema_text
from backends.generate.settings import refused
from backends.generate.vocabulary import Vocabulary

Family = Literal["hermes", "llama3", "mistral"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
LIST = "[TOOL_CALLS]"
PYTHON = "<|python_tag|>"
MAX_TOOLS = 128


class Call(Struct, frozen=True):
    """One call that the model makes."""

    name: str
    arguments: str
    """JSON."""

    def wire(self, place: int) -> dict[str, Any]:
        """As OpenAI writes it."""
        return {
            "index": place,
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


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


# Calls in a text that grows...


class CallReader:
    """Takes one choice's text apart into content and calls."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._text = ""
        self._take = {"hermes": self._hermes, "llama3": self._whole, "mistral": self._whole}[tools.family]
        self.calls = 0

    def push(self, text: str) -> tuple[str, list[Call]]:
        """The content and the calls that are sure by now."""
        self._text += text
        return self._take(False)

    def flush(self) -> tuple[str, list[Call]]:
        """What remains."""
        return self._take(True)

    def _hermes(self, ended: bool) -> tuple[str, list[Call]]:
        content, calls = "", []
        while self._text:
            if self.calls:
                self._text = self._text.lstrip()
            before, tag, rest = self._text.partition(OPEN)
            if not tag:
                held = 0 if ended else held_back(before, [OPEN])
                content += before[: len(before) - held]
                self._text = before[len(before) - held :]
                break
            inside, closing, after = rest.partition(CLOSE)
            if not closing and not ended:
                content += before
                self._text = tag + rest
                break
            found = self._accepted(_calls_of(inside))
            content += before if found is not None else before + tag + inside + closing
            calls += found or []
            self._text = after
        return content, calls

    def _whole(self, ended: bool) -> tuple[str, list[Call]]:
        """Calls that fill the text from its start to its end."""
        marks = (LIST,) if self._tools.family == "mistral" else (PYTHON, "{")
        start = self._text.lstrip()
        begun = any(start.startswith(mark) or (mark.startswith(start) and not ended) for mark in marks)
        if begun and not ended:
            return "", []
        text, self._text = self._text, ""
        found = self._accepted(_calls_of(start)) if begun else None
        return (text, []) if found is None else ("", found)

    def _accepted(self, calls: list[Call]) -> list[Call] | None:
        """As many as are wanted; None where there is no call, or one that nobody can carry out."""
        if not calls or any(call.name not in self._tools.names for call in calls):
            return None
        if not self._tools.several:
            calls = calls[: max(0, 1 - self.calls)]
        self.calls += len(calls)
        return calls


def _calls_of(text: str) -> list[Call]:
    """The calls that the text consists of; none where it is anything else."""
    text = text.strip().removeprefix(LIST).removeprefix(PYTHON).strip()
    if "[ARGS]" in text:
        name, _, arguments = text.partition("[ARGS]")
        text = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    calls = [_call(one) for one in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if all(calls) else []


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return Call(value["name"], arguments)
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None
