"""Completions: raw prompts in, what follows them out; texts or token ids, several at once."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import numpy as np
import orjson
from msgspec import Struct

from adapters._modelcard import can, is_forwarded
from adapters.openai import events, fields, inputs
from adapters.openai.asked import Asked, asked, texts, usage
from adapters.openai.errors import Refusal
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target

_OWN = ("prompt",)
_KIND = "text_completion"
_DEFAULT_TOKENS = 16
"""SPEC: the reference's default for `max_tokens`."""
_MOST_PROMPTS = 128


class Completions(Struct, frozen=True):
    """The call's three functions."""

    unknown: fields.Unknown
    most_choices: int

    def decode(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        """The request that the body makes. Raises Refusal."""
        if not can(metadata, "generate"):
            raise Refusal("this model does not complete text", "model", status=404)
        given, ignored = fields.read_for(metadata, target.parsed, fields.COMPLETION, _OWN, self.unknown)
        prompts = inputs.read(
            target.parsed, "prompt", _MOST_PROMPTS, empty=True, longest=metadata.extras.get("context_length")
        )
        fields.check_stream_options(given)
        choices = given.get("n", 1)
        fields.check_choices(choices, self.most_choices)
        if not is_forwarded(metadata):
            _settle(given, choices)
        wire = asked("cmpl", target, metadata, given, ignored, choices=choices * prompts.count,
                     top_logprobs=given.get("logprobs", 0))  # fmt: skip
        return InferenceRequest(
            inputs={"prompt": np.array(prompts.texts, object)},
            parameters=given | prompts.parameters,
            stream=given.get("stream", False),
            wire=wire,
        )

    def encode(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        """The whole answer."""
        wire: Asked = request.wire
        told = response.parameters.get("choices") or ()
        choices = [
            _choice(index, text, told[index] if index < len(told) else {}, wire)
            for index, text in enumerate(texts(response))
        ]
        body = wire.head(_KIND) | {"choices": choices, "usage": usage(response.parameters.get("usage"))}
        return Reply(orjson.dumps(body), headers=wire.headers)

    def stream(self, given: AsyncIterator[InferenceResponse], request: InferenceRequest, call: Call) -> Reply:
        """The answer in chunks."""
        return events.reply(_chunks(given, request.wire), request.wire, call)


def _settle(given: dict[str, Any], choices: int) -> None:
    """Put in what the fields mean by default, and refuse what they cannot mean together."""
    if given.pop("best_of", choices) != choices:
        raise Refusal("best_of: only the value of n is supported", "best_of", "unsupported_value")
    given.setdefault("max_tokens", _DEFAULT_TOKENS)
    if given["max_tokens"] == 0 and not given.get("echo"):
        raise Refusal("max_tokens: 0 is allowed only with echo = true", "max_tokens", "invalid_value")


def _choice(index: int, text: str, told: Mapping[str, Any], wire: Asked) -> dict[str, Any]:
    return {
        "text": text,
        "index": index,
        "logprobs": _logprobs(told.get("logprobs"), 0, wire.top_logprobs),
        "finish_reason": told.get("finish_reason") or "stop",
    }


async def _chunks(given: AsyncIterator[InferenceResponse], wire: Asked) -> AsyncGenerator[dict[str, Any]]:
    head = wire.head(_KIND)
    tail: dict[str, Any] = {"usage": None} if wire.includes_usage else {}

    def chunk(index: int, text: str, logprobs: Any = None, reason: str | None = None) -> dict[str, Any]:
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}
        return head | {"choices": [choice]} | tail

    open_, counted = set(range(wire.choices)), None
    written = dict.fromkeys(open_, 0)
    held: dict[int, list[Any]] = {}
    async for part in given:
        told = part.parameters
        index = told.get("choice", 0)
        counted = told.get("usage") or counted
        if index not in open_:
            continue
        text, reason = "".join(texts(part)), told.get("finish_reason")
        held.setdefault(index, []).extend(told.get("logprobs") or ())
        if text or (reason and held[index]):
            logprobs = _logprobs(held.pop(index) or None, written[index], wire.top_logprobs)
            written[index] += len(text)
            yield chunk(index, text, logprobs)
        if reason:
            open_.discard(index)
            yield chunk(index, "", reason=reason)
    for index in sorted(open_):
        yield chunk(index, "", reason="stop")
    if wire.includes_usage:
        yield head | {"choices": [], "usage": usage(counted)}


def _logprobs(entries: Any, offset: int, most: int) -> dict[str, Any] | None:
    """The entries of chat's form as the four lists of this one; `offset` is where the first token begins."""
    if entries is None:
        return None
    offsets = []
    for entry in entries:
        offsets.append(offset)
        offset += len(entry["token"])
    return {
        "tokens": [entry["token"] for entry in entries],
        "token_logprobs": [entry["logprob"] for entry in entries],
        "top_logprobs": [_top(entry) for entry in entries] if most else None,
        "text_offset": offsets,
    }


def _top(entry: Mapping[str, Any]) -> dict[str, float] | None:
    """SPEC: the first token of an echo has no probability, and so no rivals."""
    if entry["logprob"] is None:
        return None
    return {one["token"]: one["logprob"] for one in entry.get("top_logprobs") or ()}
