"""What an OpenAI-compatible server answers, as responses: texts as a tensor, and all that is no text as parameters."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from backends.remote.failures import bad_answer
from gateway.types import InferenceResponse, Tensor

_READ = frozenset({"role", "content", "tool_calls"})
"""What of a message has a place of its own; the rest, such as a reasoning model's thoughts, travels beside it."""


class _Message(Struct):
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class _Choice(Struct):
    index: int = 0
    message: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: dict[str, Any] | None = None


class Document(Struct):
    """A whole answer, or a chunk of one."""

    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None


class _Embedding(Struct):
    embedding: list[float] | str
    index: int = 0


class _Embeddings(Struct):
    data: list[_Embedding]
    usage: dict[str, Any] | None = None


class Piece(Struct, frozen=True):
    """What one choice has become, or goes on with."""

    index: int
    text: str
    told: dict[str, Any]


def document_of(body: bytes | dict[str, Any]) -> Document:
    """The answer or chunk. Raises InferenceFailed."""
    try:
        if isinstance(body, dict):
            return msgspec.convert(body, Document)
        return msgspec.json.decode(body, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_answer("it is not as OpenAI's API has it") from None


def pieces(document: Document, first: int, *, whole: bool) -> list[Piece]:
    """A piece for each choice, in their order."""
    return [_piece(choice, first, whole=whole) for choice in sorted(document.choices, key=lambda choice: choice.index)]


def together(found: Iterable[Piece], usages: Sequence[dict[str, Any] | None]) -> InferenceResponse:
    """The whole answer. Shapes: text [choices]."""
    told = sorted(found, key=lambda piece: piece.index)
    if not told:
        raise bad_answer("it has no choices")
    choices = [{"index": piece.index} | piece.told for piece in told]
    return InferenceResponse({"text": texts([piece.text for piece in told])}, {"choices": choices} | _usage(usages))


def part(piece: Piece) -> InferenceResponse:
    """One part of an answer. Shapes: text [1]."""
    return InferenceResponse({"text": texts([piece.text])}, {"choice": piece.index} | piece.told)


def vectors(body: bytes, count: int) -> InferenceResponse:
    """The embeddings in the order of their texts. Shapes: embedding [count, size]."""
    try:
        answer = msgspec.json.decode(body, type=_Embeddings)
        rows = [_vector(one.embedding) for one in sorted(answer.data, key=lambda one: one.index)]
        stacked = np.stack(rows)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, binascii.Error):
        raise bad_answer("it is not as OpenAI's API has it") from None
    if len(stacked) != count:
        raise bad_answer(f"it has {len(stacked)} vectors for {count} texts")
    usage = _usage([answer.usage])
    return InferenceResponse({"embedding": stacked}, usage)


def texts(given: Sequence[str]) -> Tensor:
    """A tensor of them."""
    array = np.empty(len(given), object)
    array[:] = given
    return array


def _piece(choice: _Choice, first: int, *, whole: bool) -> Piece:
    said = choice.message if whole else choice.delta
    told: dict[str, Any] = {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
    if choice.text is not None:
        return Piece(first + choice.index, choice.text, told | {"logprobs": _entries(choice.logprobs)})
    try:
        message = msgspec.convert(said or {}, _Message)
    except msgspec.ValidationError:
        raise bad_answer("it is not as OpenAI's API has it") from None
    calls = message.tool_calls or None
    if calls and not all(_is_call(call, whole) for call in calls):
        raise bad_answer("its tool calls are not as OpenAI's API has them")
    told["logprobs"] = choice.logprobs.get("content") if choice.logprobs else None
    told["tool_calls"] = calls
    if more := {name: value for name, value in (said or {}).items() if name not in _READ and value not in (None, [])}:
        told["message"] = more
    return Piece(first + choice.index, message.content or "", told)


def _is_call(call: dict[str, Any], whole: bool) -> bool:
    function = call.get("function")
    if not isinstance(function, dict):
        return False
    needed = ("name", "arguments") if whole else ()
    return all(isinstance(function.get(name), str) for name in needed)


def _entries(told: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """The four lists that completions have, as the entries that chat has."""
    if told is None:
        return None
    if isinstance(told.get("content"), list):  # NOTE: llama.cpp's server gives chat's form here, too
        return told["content"]  # type: ignore[no-any-return]
    tokens, chances = told.get("tokens") or [], told.get("token_logprobs") or []
    if not all(isinstance(token, str) for token in tokens) or len(tokens) != len(chances):
        raise bad_answer("its logprobs are not as OpenAI's API has them")
    rivals = told.get("top_logprobs") or [None] * len(tokens)
    return [
        {"token": token, "logprob": chance, "bytes": list(token.encode()), "top_logprobs": _rivals(top)}
        for token, chance, top in zip(tokens, chances, rivals, strict=False)
    ]


def _rivals(top: Any) -> list[dict[str, Any]]:
    if not isinstance(top, dict):
        return []
    return [{"token": token, "logprob": chance, "bytes": list(token.encode())} for token, chance in top.items()]


def _usage(told: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """The tokens of all calls together; nothing where a server does not count."""
    counted = [one for one in told if one]
    if not counted:
        return {}
    if len(counted) == 1:
        return {"usage": _whole_usage(counted[0])}
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {"usage": {name: sum(_whole_usage(one)[name] for one in counted) for name in names}}


def _whole_usage(told: dict[str, Any]) -> dict[str, Any]:
    counts = {
        name: count if type(count := told.get(name)) is int else 0
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }
    return told | counts


def usage_of(told: dict[str, Any] | None) -> dict[str, Any]:
    """The parameter `usage`, or nothing."""
    return _usage([told])


def _vector(given: list[float] | str) -> Tensor:
    if isinstance(given, str):
        return np.frombuffer(base64.b64decode(given, validate=True), "<f4").astype(np.float32)
    return np.array(given, np.float32)
