"""Tool calls in a model's text, found where the model makes them.

In a stream a call is told as it is written: its name as soon as that is sure, then its arguments piece by piece.
"""

import itertools
import json
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from backends.generate.detokenize import held_back
from backends.generate.tools import CLOSE, LIST, OPEN, PYTHON, Tools

_HEAD = re.compile(
    r'[\s,\[]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)', re.DOTALL
)
"""A call up to its arguments, in the order in which models are taught to write it."""


class Call(Struct, frozen=True):
    """One call that the model makes, or a further piece of its arguments."""

    name: str
    """Empty for a further piece."""
    arguments: str
    """JSON."""
    place: int = 0

    def wire(self) -> dict[str, Any]:
        """As OpenAI writes it: what the call is, with its first piece only."""
        if not self.name:
            return {"index": self.place, "function": {"arguments": self.arguments}}
        return {
            "index": self.place,
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


def joined(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each call once, with all of its arguments that are there."""
    calls: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        found = calls.get(piece["index"])
        if found is None:
            calls[piece["index"]] = piece
        else:
            arguments = found["function"]["arguments"] + piece["function"]["arguments"]
            calls[piece["index"]] = {**found, "function": {**found["function"], "arguments": arguments}}
    return list(calls.values())


class CallReader:
    """Takes one choice's text apart into content and calls; `early`: calls are told before they are complete."""

    def __init__(self, tools: Tools, early: bool = False) -> None:
        self._tools = tools
        self._text = ""
        self._take = {"hermes": self._hermes, "llama3": self._whole, "mistral": self._whole}[tools.family]
        self._started = _Started(self._start) if early else None
        self._fed = 0
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
            whole = closing or ended
            calls += self._tell(inside if whole else inside[: len(inside) - held_back(inside, [CLOSE])])
            if not whole:
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
        told = self._tell(_bare(start)) if start.startswith(marks) else []
        if begun and not ended:
            return "", told
        text, self._text = self._text, ""
        found = self._accepted(_calls_of(start)) if begun else None
        return (text, told) if found is None else ("", told + found)

    def _tell(self, region: str) -> list[Call]:
        """What is new in the calls of a region that grows."""
        if self._started is None:
            return []
        fed, self._fed = self._fed, len(region)
        return self._started.feed(region[fed:])

    def _start(self, name: str) -> int:
        """The place of a new call, -1 where it is none to tell."""
        if name not in self._tools.names or (self.calls and not self._tools.several):
            return -1
        self.calls += 1
        return self.calls - 1

    def _accepted(self, calls: list[Call]) -> list[Call] | None:
        """As many as are wanted of a region that ends; None where there is no call, or one nobody can carry out."""
        if self._started is not None:
            told, self._fed, self._started = self._started.calls, 0, _Started(self._start)
            if told:
                return []
        if not calls or any(call.name not in self._tools.names for call in calls):
            return None
        if not self._tools.several:
            calls = calls[: max(0, 1 - self.calls)]
        placed = [Call(call.name, call.arguments, self.calls + place) for place, call in enumerate(calls)]
        self.calls += len(calls)
        return placed


class _Started:
    """The calls of one region, while they are being written."""

    def __init__(self, start: Callable[[str], int]) -> None:
        self._start = start
        self._text = ""
        self._place = 0
        self._arguments: _Object | None = None
        self._rest: _Object | None = None
        self._over = False
        self.calls = 0

    def feed(self, text: str) -> list[Call]:
        """What the text adds to them."""
        found: list[Call] = []
        self._text += text
        while self._text and not self._over:
            if self._arguments is not None:
                piece, self._text = self._arguments.split(self._text)
                found.append(Call("", piece, self._place))
                if self._arguments.depth == 0:
                    self._arguments, self._rest = None, _Object(1)
            elif self._rest is not None:
                _, self._text = self._rest.split(self._text)
                if self._rest.depth == 0:
                    self._rest = None
            else:
                head = _HEAD.match(self._text)
                if head is None:
                    break
                self._text = self._text[head.end() :]
                found += self._begun(head[1])
        return found

    def _begun(self, quoted: str) -> list[Call]:
        try:
            name = json.loads(quoted)
        except ValueError:
            name = ""
        self._place = self._start(name)
        if self._place < 0:
            self._over = True
            return []
        self.calls += 1
        self._arguments = _Object(0)
        return [Call(name, "", self._place)]


class _Object:
    """A JSON object on its way: how deep in it the text is."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._quoted = self._escaped = False

    def split(self, text: str) -> tuple[str, str]:
        """What belongs to the object, and what follows it."""
        for place, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = char == "\\", char != '"'
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                if self.depth == 0:
                    return text[: place + 1], text[place + 1 :]
        return text, ""


def _bare(text: str) -> str:
    """The text without the mark before its calls."""
    return text.removeprefix(LIST).removeprefix(PYTHON)


def _calls_of(text: str) -> list[Call]:
    """The calls that the text consists of; none where it is anything else."""
    text = _bare(text.strip()).strip()
    if "[ARGS]" in text:
        name, _, arguments = text.partition("[ARGS]")
        text = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    values = value if isinstance(value, list) else [value]
    calls = [_call(one) for one in values]
    return _as_written([call for call in calls if call is not None], text) if all(calls) else []


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return Call(value["name"], arguments)
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None


def _as_written(calls: list[Call], text: str) -> list[Call]:
    """The calls with their arguments as the model wrote them, which is what a stream has told."""
    places = itertools.count()
    pieces = joined(piece.wire() for piece in _Started(lambda name: next(places)).feed(text))
    if [call.name for call in calls] != [piece["function"]["name"] for piece in pieces]:
        return calls
    return [Call(piece["function"]["name"], piece["function"]["arguments"]) for piece in pieces]
