"""One choice on its way: its prompt, the tokens so far, and what of them can be shown."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from backends.generate.calls import Call, CallReader, joined
from backends.generate.detokenize import Detokenizer, Stops
from backends.generate.grammar import Constraint
from backends.generate.sampling import Sampler, logprob_entry
from backends.generate.settings import Settings
from backends.generate.tools import Tools
from backends.generate.vocabulary import Vocabulary

Logits = NDArray[np.float32]


class Delta(Struct, eq=False):
    """What one step, or several, add to a choice."""

    choice: int
    text: str = ""
    logprobs: list[dict[str, Any]] = []
    tool_calls: list[dict[str, Any]] = []
    tokens: list[int] = []
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    begins: bool = False
    """Whether it tells that the choice has a slot, before there is anything else to tell."""

    def add(self, later: "Delta") -> None:
        """Take in what came later."""
        self.text += later.text
        self.logprobs += later.logprobs
        self.tool_calls = joined([*self.tool_calls, *later.tool_calls])
        self.tokens += later.tokens
        self.finish_reason, self.stop_reason = later.finish_reason, later.stop_reason

    @property
    def empty(self) -> bool:
        """There is nothing in it to tell."""
        return not (self.text or self.logprobs or self.tool_calls or self.finish_reason or self.begins)


class Language(Struct, frozen=True):
    """What all choices of a model share."""

    vocabulary: Vocabulary
    eos: frozenset[int]
    marks: frozenset[int]
    """Control tokens that are seen in the text."""
    context: int


class Choice:
    """One continuation of one prompt."""

    def __init__(
        self,
        index: int,
        prompt: list[int],
        settings: Settings,
        language: Language,
        number: int = 0,
        constraint: Constraint | None = None,
        tools: Tools | None = None,
        streamed: bool = False,
    ) -> None:
        self.index = index
        self.prompt = prompt
        self.tokens = list(prompt)
        """The prompt, then what was drawn."""
        self.prompt_tokens = len(prompt)
        self.cached_tokens = 0
        self.echo = settings.echo
        self.wants_prompt_logits = settings.echo and settings.top_logprobs is not None
        room = language.context - len(prompt)
        self.most_tokens = room if settings.max_tokens is None else min(room, settings.max_tokens)
        self._settings, self._language = settings, language
        self._ends = language.eos | settings.stop_token_ids
        self._sampler = Sampler(settings, number, language.vocabulary.size, prompt)
        self._detokenizer = Detokenizer(language.vocabulary, language.marks if tools else frozenset())
        self._stops = Stops(settings.stop)
        self._reader = CallReader(tools, early=streamed) if tools else None
        self._forced = tools.forced if tools else ""
        self._constraint = constraint
        self._waiting: list[dict[str, Any]] = []
        """Probabilities of tokens whose text is not complete yet."""
        self.wants_logprobs = settings.top_logprobs is not None
        self.told = False
        """Its end has been sent."""

    @property
    def completion_tokens(self) -> int:
        """How many were drawn, the one that ends it included."""
        return len(self.tokens) - self.prompt_tokens

    def echoed(self) -> Delta:
        """The prompt as the first part of the text."""
        prompt = self.tokens[: self.prompt_tokens]
        return Delta(self.index, self._language.vocabulary.shown(prompt), [], [], list(prompt))

    def score_prompt(self, place: int, logits: Logits) -> None:
        """Note the probabilities of the prompt's tokens; `logits` follow the token at `place` and those behind it."""
        vocabulary = self._language.vocabulary
        if place == 0:
            first = self.tokens[0]
            shown = {"token": vocabulary.shown([first]), "token_id": first, "bytes": list(vocabulary.bytes[first])}
            self._waiting.append(shown | {"logprob": None, "top_logprobs": []})
        for row, token in zip(logits, self.tokens[place + 1 : self.prompt_tokens], strict=False):
            self._waiting.append(logprob_entry(row, token, self._settings.top_logprobs or 0, vocabulary))

    def skip(self) -> Delta:
        """End without a single token."""
        return self._end(Delta(self.index, "", [], [], []), "length", None)

    def accept(self, logits: Logits) -> Delta:
        """Draw the next token. Shapes: [vocabulary]."""
        settings, language = self._settings, self._language
        enough = self._constraint is not None or self.completion_tokens >= settings.min_tokens
        allowed = None if self._constraint is None else self._constraint.allowed()
        token = self._sampler.choose(logits, allowed, () if enough else self._ends)
        self.tokens.append(token)
        delta = Delta(self.index, "", [], [], [token])
        if token in language.eos and not settings.ignore_eos:
            return self._end(delta, "stop", None)
        if token in settings.stop_token_ids:
            return self._end(delta, "stop", token)
        if settings.top_logprobs is not None:
            self._waiting.append(logprob_entry(logits, token, settings.top_logprobs, language.vocabulary))
        complete = self._constraint is not None and not self._constraint.advance(token)
        text, stop = self._stops.push(self._detokenizer.push(token))
        self._show(delta, text)
        if stop is not None:
            return self._end(delta, "stop", stop, cut=True)
        if complete:
            return self._end(delta, "stop", None)
        if self.completion_tokens >= self.most_tokens:
            return self._end(delta, "length", None)
        return delta

    def _show(self, delta: Delta, text: str) -> None:
        calls: Sequence[Call] = ()
        if self._reader is not None and text:
            text, calls = self._reader.push(text)
        self._add(delta, text, calls)

    def _add(self, delta: Delta, text: str, calls: Sequence[Call]) -> None:
        if calls:
            delta.tool_calls = joined([*delta.tool_calls, *(call.wire() for call in calls)])
        delta.text += text
        if text or calls:
            delta.logprobs += self._waiting
            self._waiting = []

    def _end(self, delta: Delta, reason: str, stop: str | int | None, cut: bool = False) -> Delta:
        if not cut:
            text, found = self._stops.push(self._detokenizer.flush())
            self._show(delta, text if found is not None else text + self._stops.flush())
        if self._reader is not None:
            self._add(delta, *self._reader.flush())
            if self._reader.calls and reason == "stop":
                reason = "stop" if self._forced == "named" else "tool_calls"
        delta.logprobs += self._waiting
        self._waiting = []
        delta.finish_reason, delta.stop_reason = reason, stop
        return delta
