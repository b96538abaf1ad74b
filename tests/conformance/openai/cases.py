"""The cases of cases.jsonl, and what must be done with them before they are sent.

Facts gathered from OpenAI's OpenAPI description 2.3.0, openai-python 3.57, vLLM's and llama.cpp's server tests.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

CHAT, EMBED, KEY = "chatter", "org/embedder:int8", "opensesame"
_NAMES = {"$CHAT": CHAT, "$EMB": EMBED, "$KEY": KEY}


class Case(NamedTuple):
    """A request and what must come back."""

    id: str
    request: Json
    expect: Json
    requires: list[str]

    @property
    def body(self) -> bytes | None:
        """What is sent."""
        raw = self.request.get("raw")
        if raw is None:
            return json.dumps(self.request["body"]).encode() if "body" in self.request else None
        run = "a" * 64
        return str(raw).replace(run, "a" * self.request["pad_to"] if "pad_to" in self.request else run).encode()

    @property
    def headers(self) -> dict[str, str]:
        """With the key, unless the case wants none."""
        own = self.request.get("headers", {})
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"} | own
        return {name: value for name, value in headers.items() if value is not None}


def load() -> dict[str, Case]:
    """Every case by its id."""
    lines = (Path(__file__).with_name("cases.jsonl")).read_text("utf-8").splitlines()
    given = [_filled(json.loads(line)) for line in lines]
    return {one["id"]: Case(one["id"], one["request"], one["expect"], one.get("requires", [])) for one in given}


def _filled(value: Any) -> Any:
    """The value with the placeholders' names in it."""
    if isinstance(value, dict):
        if "$repeat" in value:
            text, times = value["$repeat"]
            return text * times
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if isinstance(value, str):
        for placeholder, name in _NAMES.items():
            value = value.replace(placeholder, name)
    return value
