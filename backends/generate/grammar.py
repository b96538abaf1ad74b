"""Answers in a form that the caller prescribes: which tokens keep a text within a JSON schema, a regex or a grammar."""

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from backends.generate.settings import refused
from backends.generate.vocabulary import Vocabulary
from gateway.errors import InvalidTensor, LoadFailed

WHITESPACE = r"[\x20\x0A\x0D\x09]{1,8}"
"""NOTE: without a bound a weak model writes white space for ever; with none at all it leaves what it was trained on."""

MAX_GRAMMAR_CHARS = 1 << 20


class Grammars:
    """Compiles grammars for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, eos: frozenset[int]) -> None:
        try:
            self._tokenizer = LLTokenizer(vocabulary.json, n_vocab=vocabulary.size, eos_token=sorted(eos))
        except Exception as error:
            raise LoadFailed(f"tokenizer.json cannot be used for grammars: {str(error)[:200]}") from None
        self._size = vocabulary.size
        self._compiled = functools.lru_cache(32)(self._compile)

    def constraint(self, grammar: str, name: str) -> "Constraint":
        """What keeps one choice within the grammar; blocks. Raises InvalidTensor naming the parameter."""
        if len(grammar) > MAX_GRAMMAR_CHARS:
            raise refused(name, f"it is larger than {MAX_GRAMMAR_CHARS} characters")
        matcher = self._compiled(grammar)
        if matcher.is_error():
            raise refused(name, f"it cannot be compiled: {_reason(matcher.get_error())}")
        return Constraint(matcher.deep_copy(), self._size)

    def _compile(self, grammar: str) -> LLMatcher:
        return LLMatcher(self._tokenizer, grammar, log_level=0)


class Constraint:
    """One choice's place in its grammar."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self._matcher = matcher
        self._size = size
        self._mask = np.zeros((size + 31) // 32, np.int32)

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next. Shapes: [vocabulary]."""
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        if self._matcher.is_error():
            raise InvalidTensor(f"the prescribed form is too complex: {_reason(self._matcher.get_error())}")
        return np.unpackbits(self._mask.view(np.uint8), bitorder="little")[: self._size].astype(np.bool_)

    def advance(self, token: int) -> bool:
        """Take the token; False where nothing may follow it."""
        return bool(self._matcher.consume_token(token)) and not self._matcher.is_stopped()


def grammar_of(parameters: Mapping[str, Any]) -> tuple[str, str] | None:
    """The grammar that response_format or structured_outputs prescribes, and the parameter that does."""
    form = parameters.get("response_format")
    if form is not None:
        if not isinstance(form, dict) or form.get("type") not in ("text", "json_object", "json_schema"):
            raise refused("response_format", "type must be one of text, json_object, json_schema")
        if form["type"] == "json_object":
            return json_grammar({"type": "object"}, "response_format"), "response_format"
        if form["type"] == "json_schema":
            described = form.get("json_schema")
            schema = described.get("schema") if isinstance(described, dict) else None
            if not isinstance(schema, dict | bool):
                raise refused("response_format.json_schema", "expected an object with name and schema")
            return json_grammar(schema, "response_format.json_schema.schema"), "response_format.json_schema.schema"
    return _structured(parameters.get("structured_outputs"))


def _structured(wanted: Any) -> tuple[str, str] | None:
    if wanted is None:
        return None
    kinds = [kind for kind in ("json", "regex", "choice", "grammar") if isinstance(wanted, dict) and wanted.get(kind)]
    if len(kinds) != 1:
        raise refused("structured_outputs", "expected an object with exactly one of json, regex, choice, grammar")
    name, value = f"structured_outputs.{kinds[0]}", wanted[kinds[0]]
    if kinds[0] == "json" and isinstance(value, dict):
        return json_grammar(value, name), name
    if kinds[0] == "choice" and isinstance(value, list) and all(isinstance(one, str) and one for one in value):
        literals = " | ".join(json.dumps(one, ensure_ascii=False) for one in value)
        return LLMatcher.grammar_from_lark(f"start: {literals}"), name
    if kinds[0] in ("regex", "grammar") and isinstance(value, str):
        make = LLMatcher.grammar_from_regex if kinds[0] == "regex" else LLMatcher.grammar_from_lark
        return make(value), name
    raise refused(name, "it has not the type that it must have")


def json_grammar(schema: Any, name: str) -> str:
    """The grammar of the texts that fit the schema."""
    try:
        return LLMatcher.grammar_from_json_schema(schema_text(schema), overrides={"whitespace_pattern": WHITESPACE})
    except ValueError as error:
        raise refused(name, f"it cannot be used: {_reason(str(error))}") from None


def schema_text(schema: Any) -> str:
    """The schema as JSON."""
    return json.dumps(schema, ensure_ascii=False)


def _reason(text: str) -> str:
    return " ".join(text.split())[:300]
