"""A request becomes choices: its prompts as tokens, each as often as it wants answers, with what rules each of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from backends.generate.chat import ChatTemplate
from backends.generate.grammar import Grammars, grammar_of
from backends.generate.sequence import Choice, Language
from backends.generate.settings import checked_tokens, refused, settings_of
from backends.generate.tools import Family, Tools, tools_of
from gateway.errors import ContextTooLong, InvalidTensor

LONG_CHARS = 2048
"""PERF: a template and a tokenizer take 0.1 ms for a text of this size; longer ones do not hold the event loop up."""

TOKEN_PROMPTS = "prompt_token_ids"

_COMPILED = ("response_format", "structured_outputs", "tools")


def chars_of(texts: Sequence[str], parameters: Mapping[str, Any]) -> int:
    """How much there is to prepare; a grammar counts as a long text."""
    if any(parameters.get(name) is not None for name in _COMPILED):
        return LONG_CHARS + 1
    return sum(map(len, texts)) + len(parameters.get(TOKEN_PROMPTS) or ())


class Preparer:
    """Prepares the requests of one model."""

    def __init__(
        self,
        language: Language,
        chat: ChatTemplate | None,
        grammars: Grammars,
        family: Family | None,
        defaults: Mapping[str, Any],
        most_choices: int,
        most_at_once: int,
        bos: int | None,
    ) -> None:
        self.language, self.chat, self.family = language, chat, family
        self._grammars, self._defaults = grammars, defaults
        self._most_choices, self._most_at_once, self._bos = most_choices, most_at_once, bos

    def prepare(
        self, texts: Sequence[str], as_chat: bool, parameters: Mapping[str, Any], streamed: bool
    ) -> list[Choice]:
        """The choices, those of the first prompt first. Raises InvalidTensor or ContextTooLong."""
        language = self.language
        settings = settings_of(parameters, self._defaults, language.vocabulary.size, self._most_choices)
        tools = tools_of(parameters, self.family, language.vocabulary) if as_chat else None
        form = self._grammar(parameters, tools)
        if not as_chat and parameters.get(TOKEN_PROMPTS) is not None:
            prompts = self._token_prompts(parameters[TOKEN_PROMPTS])
        else:
            name = "messages" if as_chat else "prompt"
            most = self._most_at_once // settings.n
            if len(texts) > most:
                raise InvalidTensor(f"{name}: there are {len(texts)}; at most {most} are answered at once")
            prompts = [self._tokens(text, as_chat, parameters) for text in texts]
        if not prompts:
            raise InvalidTensor("there is no prompt")
        if len(prompts) * settings.n > self._most_at_once:
            raise refused("n", f"{len(prompts)} prompts of {settings.n} choices are more than can be answered at once")
        for prompt in prompts:
            self._check_length(prompt, settings.max_tokens, "messages" if as_chat else "prompt")
        return [
            Choice(
                place * settings.n + number,
                prompt,
                settings,
                language,
                number,
                self._grammars.constraint(*form) if form else None,
                tools,
                streamed,
            )
            for place, prompt in enumerate(prompts)
            for number in range(settings.n)
        ]

    def _grammar(self, parameters: Mapping[str, Any], tools: Tools | None) -> tuple[str, str] | None:
        form = grammar_of(parameters)
        if tools is None:
            return form
        if form is not None:
            raise refused("response_format", "it cannot be combined with tools that may be called")
        return (tools.grammar, "tools") if tools.grammar else None

    def _token_prompts(self, given: Any) -> list[list[int]]:
        if isinstance(given, list) and given and not isinstance(given[0], list):
            given = [given]
        if not isinstance(given, list):
            raise refused(TOKEN_PROMPTS, "expected a list of lists of token ids")
        return [checked_tokens(one, self.language.vocabulary.size, TOKEN_PROMPTS) for one in given]

    def _tokens(self, text: str, as_chat: bool, parameters: Mapping[str, Any]) -> list[int]:
        if as_chat:
            assert self.chat is not None
            return self.chat.prompt(text, parameters)
        most = self.language.context * self.language.vocabulary.longest
        if len(text) > most:
            raise ContextTooLong(f"prompt: it has more than the {self.language.context} tokens that the model takes")
        return self.language.vocabulary.encode(text, "prompt") or ([] if self._bos is None else [self._bos])

    def _check_length(self, prompt: list[int], wanted: int | None, name: str) -> None:
        if not prompt:
            raise InvalidTensor(f"{name}: it has no tokens")
        room = self.language.context - len(prompt)
        if room < 1:
            asked = "" if wanted is None else f", and asks for {wanted} more"
            raise ContextTooLong(
                f"{name}: it has {len(prompt)} tokens{asked}; the model takes {self.language.context} tokens, "
                "the answer's included"
            )
