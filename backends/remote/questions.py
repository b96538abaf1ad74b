"""A request becomes the bodies of calls to an OpenAI-compatible server: its parameters are their fields.

Source: OpenAI's API reference; the fields that only vLLM and llama.cpp have travel as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.errors import InvalidTensor

CHAT, COMPLETIONS, EMBEDDINGS = "/chat/completions", "/completions", "/embeddings"
TOKENS = "prompt_token_ids"
MOST_AT_ONCE = 64
"""Conversations of one request."""
_MOST_TEXTS = 2048

_OWN = frozenset({"model", "messages", "prompt", "input", "stream", TOKENS})


class Question(Struct, frozen=True):
    """One call."""

    path: str
    body: dict[str, Any]
    first: int = 0
    """The number of its first choice among those of the whole request."""

    def written(self, *, stream: bool) -> bytes:
        """The body. Raises InvalidTensor for what JSON cannot say."""
        # SPEC: stream_options goes with a stream only; a whole answer is counted anyhow.
        whole = {name: value for name, value in self.body.items() if name != "stream_options"}
        try:
            return msgspec.json.encode(self.body | {"stream": True} if stream else whole)
        except (TypeError, UnicodeEncodeError, RecursionError, OverflowError):
            raise InvalidTensor("parameters: they hold what JSON cannot say") from None


def conversations(model: str, texts: Sequence[str], fields: Mapping[str, Any]) -> list[Question]:
    """A call for each of the texts, which are messages as JSON."""
    return _chats(model, [_messages(text) for text in texts], fields, "messages")


def asked_as_user(model: str, texts: Sequence[str], fields: Mapping[str, Any]) -> list[Question]:
    """A call for each prompt, for servers that only chat."""
    return _chats(model, [[{"role": "user", "content": text}] for text in texts], fields, "prompt")


def prompts(model: str, texts: Sequence[str], fields: Mapping[str, Any], tokens: Any) -> list[Question]:
    """One call for all of them."""
    return [Question(COMPLETIONS, {"model": model, "prompt": _inputs(texts, tokens, "prompt"), **fields})]


def embeddings(model: str, texts: Sequence[str], fields: Mapping[str, Any], tokens: Any) -> Question:
    """One call for all of them; numbers are asked for, since not every server writes base64."""
    body = {"model": model, "input": _inputs(texts, tokens, "text"), **fields, "encoding_format": "float"}
    return Question(EMBEDDINGS, body)


def fields_of(parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What the request asks for beside its texts; a few names of other protocols are OpenAI's here."""
    given = {name: value for name, value in parameters.items() if value is not None and name not in _OWN}
    if "max_new_tokens" in given:
        longest = given.pop("max_new_tokens")
        if not given.keys() & {"max_tokens", "max_completion_tokens"}:
            given["max_tokens"] = longest
    if given.pop("do_sample", None) is False:
        given["temperature"] = 0
    return {**defaults, **given}


def _chats(
    model: str, conversations: Sequence[list[dict[str, Any]]], fields: Mapping[str, Any], name: str
) -> list[Question]:
    if not 1 <= len(conversations) <= MOST_AT_ONCE:
        raise InvalidTensor(f"{name}: expected 1 to {MOST_AT_ONCE} at once, got {len(conversations)}")
    choices = fields.get("n", 1)
    step = choices if isinstance(choices, int) and choices > 0 else 1
    return [
        Question(CHAT, {"model": model, "messages": messages, **fields}, place * step)
        for place, messages in enumerate(conversations)
    ]


def _messages(text: str) -> list[dict[str, Any]]:
    try:
        messages = msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise InvalidTensor("messages: expected a JSON list of objects") from None
    if not messages:
        raise InvalidTensor("messages: expected at least one message")
    return messages


def _inputs(texts: Sequence[str], tokens: Any, name: str) -> Any:
    given = list(texts) if tokens is None else tokens
    if not isinstance(given, list) or not 1 <= len(given) <= _MOST_TEXTS:
        raise InvalidTensor(f"{name}: expected 1 to {_MOST_TEXTS} at once")
    return given[0] if len(given) == 1 else given
