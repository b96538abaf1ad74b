"""A request's parameters, checked: OpenAI's own names, vLLM's for what OpenAI lacks, and a few of text-generation's.

Whoever asks through another protocol gets the same checks; the text of a refusal names the parameter.
"""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.errors import InvalidTensor

INT64 = 1 << 63
MAX_STOPS = 4
MAX_STOP_CHARS = 4096
MAX_BIASES = 4096
MAX_TOP_LOGPROBS = 20

_LENGTHS = ("max_completion_tokens", "max_tokens", "max_new_tokens")


class Settings(Struct, frozen=True):
    """How to continue a prompt."""

    max_tokens: int | None = None
    """None for as many as the context holds."""
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 for all."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = {}
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    n: int = 1
    top_logprobs: int | None = None
    """None for no probabilities at all."""
    echo: bool = False


def settings_of(given: Mapping[str, Any], defaults: Mapping[str, Any], vocabulary: int, most_choices: int) -> Settings:
    """The settings that the parameters ask for; null means absent. Raises InvalidTensor."""
    read = _Reader({**defaults, **{name: value for name, value in given.items() if value is not None}})
    greedy = not read.flag("do_sample", True)
    max_tokens = read.length()
    return Settings(
        max_tokens=max_tokens,
        min_tokens=read.whole("min_tokens", 0, 0, INT64),
        temperature=0.0 if greedy else read.number("temperature", 1, 0, 2),
        top_p=read.number("top_p", 1, 0, 1),
        top_k=max(0, read.whole("top_k", 0, -1, INT64)),
        min_p=read.number("min_p", 0, 0, 1),
        presence_penalty=read.number("presence_penalty", 0, -2, 2),
        frequency_penalty=read.number("frequency_penalty", 0, -2, 2),
        repetition_penalty=read.number("repetition_penalty", 1, 0.01, 100),
        logit_bias=read.bias(vocabulary),
        seed=read.whole("seed", None, -INT64, INT64 - 1),
        stop=read.stop(),
        stop_token_ids=frozenset(read.tokens("stop_token_ids", vocabulary)),
        ignore_eos=read.flag("ignore_eos", False),
        n=read.whole("n", 1, 1, most_choices),
        top_logprobs=read.logprobs(),
        echo=read.flag("echo", False) or read.flag("return_full_text", False),
    )


class _Reader:
    """Parameters, each taken out with what it must be."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def number(self, name: str, default: float, least: float, most: float) -> float:
        value = self._given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise refused(name, f"expected a number from {least} to {most}")
        if not least <= value <= most:
            raise refused(name, f"expected a number from {least} to {most}, got {value!r:.32}")
        return float(value)

    def whole(self, name: str, default: Any, least: int, most: int) -> Any:
        value = self._given.get(name, default)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise refused(name, "expected a whole number")
        if not least <= value <= most:
            raise refused(name, f"expected a whole number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name, default)
        if not isinstance(value, bool):
            raise refused(name, "expected true or false")
        return value

    def length(self) -> int | None:
        """0 is for whoever only wants the prompt's own probabilities."""
        found = [
            self.whole(name, None, 0 if self._given.get("echo") is True else 1, INT64)
            for name in _LENGTHS
            if name in self._given
        ]
        return found[0] if found else None

    def stop(self) -> tuple[str, ...]:
        name = "stop" if "stop" in self._given else "stop_sequences"
        value = self._given.get(name, ())
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) for stop in stops):
            raise refused(name, "expected a string or a list of strings")
        if len(stops) > MAX_STOPS:
            raise refused(name, f"expected at most {MAX_STOPS} strings, got {len(stops)}")
        if not all(0 < len(stop) <= MAX_STOP_CHARS for stop in stops):
            raise refused(name, f"expected strings of 1 to {MAX_STOP_CHARS} characters")
        return tuple(stops)

    def tokens(self, name: str, vocabulary: int) -> list[int]:
        value = self._given.get(name, ())
        return checked_tokens(value, vocabulary, name) if value else []

    def bias(self, vocabulary: int) -> dict[int, float]:
        value = self._given.get("logit_bias", {})
        if not isinstance(value, dict) or len(value) > MAX_BIASES:
            raise refused("logit_bias", f"expected an object of at most {MAX_BIASES} entries")
        bias: dict[int, float] = {}
        for key, amount in value.items():
            text = str(key)
            if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < vocabulary):
                raise refused("logit_bias", f"{text!r:.32} is no token: expected 0 to {vocabulary - 1}")
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not -100 <= amount <= 100:
                raise refused("logit_bias", f"the value of {text} must be a number from -100 to 100")
            bias[int(text)] = float(amount)
        return bias

    def logprobs(self) -> int | None:
        """Chat says `logprobs: true, top_logprobs: 3`, completions `logprobs: 3`."""
        value = self._given.get("logprobs", False)
        top = self.whole("top_logprobs", None, 0, MAX_TOP_LOGPROBS)
        if isinstance(value, bool):
            if not value and top:
                raise refused("top_logprobs", "needs logprobs to be true")
            return (top or 0) if value else None
        count: int = self.whole("logprobs", 0, 0, MAX_TOP_LOGPROBS)
        return count if top is None else top


def refused(name: str, reason: str) -> InvalidTensor:
    """The complaint about a parameter."""
    return InvalidTensor(f"parameters.{name}: {reason}")


def checked_tokens(value: Any, vocabulary: int, name: str) -> list[int]:
    """The token ids of a list. Raises InvalidTensor."""
    if not isinstance(value, list | tuple):
        raise refused(name, "expected a list of token ids")
    for token in value:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
            raise refused(name, f"expected token ids from 0 to {vocabulary - 1}, got {token!r:.32}")
    return list(value)
