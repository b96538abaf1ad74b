"""What the pages say, in each language that there is a catalogue of."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

FOLDER = Path(__file__).parent / "texts"
LANGUAGES = ("en", "zh")
"""The first is the one for everybody else."""


class Texts(Struct, frozen=True):
    """One language's."""

    language: str
    texts: Mapping[str, str]

    def __call__(self, key: str, **values: object) -> str:
        """The text of that key, with the values put in."""
        text = self.texts[key]
        return text.format(**values) if values else text

    def known(self, prefix: str, word: str) -> str:
        """The text for one of a set of words, such as a state; the word itself where there is none."""
        return self.texts.get(f"{prefix}.{word}", word)


@cache
def texts(language: str) -> Texts:
    """The catalogue of one of `LANGUAGES`."""
    return Texts(language, msgspec.json.decode((FOLDER / f"{language}.json").read_bytes(), type=dict[str, str]))


def preferred(chosen: str, accepted: str) -> str:
    """The language: as chosen, else the first of an Accept-Language header that there is."""
    if chosen in LANGUAGES:
        return chosen
    for part in accepted[:256].lower().split(","):
        word = part.partition(";")[0].strip().partition("-")[0]
        if word in LANGUAGES:
            return word
    return LANGUAGES[0]
