"""Every page speaks every language."""

import re
from string import Formatter

import pytest

from gateway.console.rendering import HERE
from gateway.console.texts import LANGUAGES, preferred, texts

TEMPLATES = sorted((HERE / "templates").glob("*.html"))
NO_WORDS = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<(code|script|title)\b.*?</\1>|<[^>]*>", re.DOTALL)
NAMES = {"MiB", "tensorgate", "GET", "POST", "PUT", "PATCH", "DELETE", "Serving", "Seldon", "SageMaker"}
NAMES |= {"instances", "strData"}
"""The same in every language."""
FIRST, *OTHERS = LANGUAGES


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("language", OTHERS)
def test_catalogues_agree(language: str) -> None:
    """All have the same texts, with the same values in them."""
    assert {key: fields(text) for key, text in texts(FIRST).texts.items()} == {
        key: fields(text) for key, text in texts(language).texts.items()
    }


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_speak_by_the_catalogue(path: object) -> None:
    """Every text that a template asks for is there, and no template has words of its own."""
    source = (HERE / "templates" / str(path)).read_text()
    asked = set(re.findall(r"""\bt\(["']([^"']+)["'][,)]""", source))
    assert asked - texts(FIRST).texts.keys() == set()
    bare = re.sub(
        r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<(code|script|title)\b.*?</\1>|<[^>]*>", " ", source, flags=re.DOTALL
    )
    assert set(re.findall(r"[A-Za-z]{3,}", bare)) <= NAMES


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        ("zh", "en", "zh"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "fr, en;q=0.5", "en"),
        ("fr", "", "en"),
        ("", ";;,,q=;-", "en"),
    ],
)
def test_the_language_is_the_visitors(chosen: str, accepted: str, language: str) -> None:
    """As chosen, else as the browser asks, else English."""
    assert language == preferred(chosen, accepted)
