"""Texts or token ids, one or several, as completions and embeddings take them."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from adapters.openai.errors import Refusal
from adapters.openai.rules import token_ids, wrong

TOKENS = "prompt_token_ids"
"""The parameter that has token ids instead of texts."""


class Inputs(Struct, frozen=True):
    """What a model is given: texts, or the parameter `prompt_token_ids` beside empty ones."""

    texts: list[str]
    parameters: dict[str, Any] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.texts)


def read(document: Mapping[str, Any], name: str, most: int, *, empty: bool, longest: int | None = None) -> Inputs:
    """The field's value; `empty` tells whether a text may be, `longest` how many tokens. Raises Refusal."""
    value = document.get(name)
    if value is None:
        raise Refusal(f"missing {name}", name, "missing_required_parameter")
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise wrong(name, "a string, a list of strings, or token ids", value, "invalid_type")
    if value and isinstance(value[0], int):
        value = [value]
    if not 1 <= len(value) <= most:
        raise Refusal(f"{name}: expected 1 to {most} items, got {len(value)}", name, "invalid_value")
    if all(isinstance(one, str) for one in value):
        if not empty and "" in value:
            raise Refusal(f"{name}: a text must not be empty", name, "invalid_value")
        return Inputs(value)
    if not all(isinstance(one, list) and one for one in value):
        raise Refusal(f"{name}: expected only strings, or only lists of token ids", name, "invalid_type")
    # PERF: millions of tokens are refused by their number, before one of them is looked at.
    if longest is not None and (most_tokens := max(map(len, value))) > longest:
        reason = f"{name}: it has {most_tokens} tokens; the model takes {longest}"
        raise Refusal(reason, name, "context_length_exceeded")
    return Inputs([""] * len(value), {TOKENS: [token_ids(one, name) for one in value]})
