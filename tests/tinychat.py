"""The demo's language model for tests: its folder, its vocabulary, its requests."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from backends.generate import layout
from backends.generate.vocabulary import Vocabulary
from gateway.interfaces import ModelSource
from gateway.types import DEFAULT_SIGNATURE, InferenceRequest

FOLDER = Path(__file__).resolve().parent.parent / "configs" / "models" / "tinychat" / "1"
SIZE = 1024


@functools.cache
def vocabulary() -> Vocabulary:
    """Its tokens."""
    return Vocabulary((FOLDER / layout.TOKENIZER).read_text("utf-8"), SIZE)


def source(folder: Path = FOLDER) -> ModelSource:
    """The model as a backend is given it."""
    return ModelSource("tinychat", 1, folder, folder)


def says(*texts: str) -> list[dict[str, Any]]:
    """A conversation in which user and assistant take turns."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def asked(*conversations: str | list[dict[str, Any]], **parameters: Any) -> InferenceRequest:
    """A request to chat; a text is a conversation of one message."""
    messages = [says(one) if isinstance(one, str) else one for one in conversations]
    return InferenceRequest({"messages": strings(*map(json.dumps, messages))}, "chat", parameters=parameters)


def begun(*prompts: str, **parameters: Any) -> InferenceRequest:
    """A request to continue texts."""
    return InferenceRequest({"prompt": strings(*prompts)}, DEFAULT_SIGNATURE, parameters=parameters)


def strings(*texts: str) -> Any:
    """A tensor of strings. Shapes: [texts]."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array
