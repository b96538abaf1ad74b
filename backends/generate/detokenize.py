"""Tokens become text piece by piece: no character is shown before all its bytes are there, no stop string at all."""

import codecs
from collections.abc import Sequence

from backends.generate.vocabulary import Vocabulary


class Detokenizer:
    """One choice's tokens as text."""

    def __init__(self, vocabulary: Vocabulary, shown_special: frozenset[int]) -> None:
        self._bytes = vocabulary.bytes
        self._hidden = vocabulary.special - shown_special
        self._strips = vocabulary.strips_space
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def push(self, token: int) -> str:
        """The text that the token completes."""
        if token in self._hidden:
            return ""
        text = self._decode(self._bytes[token])
        if self._strips and text:
            self._strips = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """What an unfinished character leaves: a replacement character."""
        return self._decode(b"", True)


class Stops:
    """Text up to the first stop string; what may yet become one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """What can be shown now, and the stop string that ends it if one is complete."""
        if not self._stops or not text:
            return text, None
        text = self._held + text
        found = [(text.find(stop), order) for order, stop in enumerate(self._stops) if stop in text]
        if found:
            at, order = min(found)
            self._held = ""
            return text[:at], self._stops[order]
        held = held_back(text, self._stops)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None

    def flush(self) -> str:
        """What was held back for a stop string that never came."""
        held, self._held = self._held, ""
        return held


def held_back(text: str, ends: Sequence[str]) -> int:
    """How many of the last characters could begin one of `ends`."""
    for length in range(min(len(text), max(map(len, ends)) - 1), 0, -1):
        if any(end.startswith(text[-length:]) for end in ends if len(end) > length):
            return length
    return 0
