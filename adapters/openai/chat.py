"""Chat completions: a conversation in, the assistant's next message out, whole or in deltas."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
from msgspec import Struct

from adapters._modelcard import CHAT, can, is_forwarded
from adapters.openai import events, fields, messages, tools
from adapters.openai.asked import Asked, asked, texts, usage
from adapters.openai.errors import Refusal
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target

_OWN = ("messages",)
_WHOLE, _CHUNK = "chat.completion", "chat.completion.chunk"


class Chat(Struct, frozen=True):
    """The call's three functions."""

    flat_choice: bool
    unknown: fields.Unknown
    most_choices: int

    def decode(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        """The request that the body makes. Raises Refusal."""
        if not can(metadata, "generate") or CHAT not in metadata.signatures:
            raise Refusal("this is not a chat model", "model", status=404)
        given, ignored = fields.read_for(metadata, target.parsed, fields.CHAT, _OWN, self.unknown)
        if is_forwarded(metadata):
            conversation = messages.forwarded(target.parsed)
            fields.check_stream_options(given)
        else:
            conversation = messages.read(target.parsed)
            _check(given, conversation, metadata)
        choices = given.get("n", 1)
        fields.check_choices(choices, self.most_choices)
        wire = asked("chatcmpl", target, metadata, given, ignored, choices=choices,
                     named_tool=tools.named(given.get("tool_choice")) is not None)  # fmt: skip
        return InferenceRequest(
            inputs={"messages": np.array([orjson.dumps(conversation).decode()], object)},
            signature=CHAT,
            parameters=given,
            stream=given.get("stream", False),
            wire=wire,
        )

    def encode(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        """The whole answer."""
        wire: Asked = request.wire
        told = response.parameters.get("choices") or ()
        choices = [
            self._choice(index, text, told[index] if index < len(told) else {}, wire)
            for index, text in enumerate(texts(response))
        ]
        body = wire.head(_WHOLE) | {"choices": choices, "usage": usage(response.parameters.get("usage"))}
        return Reply(orjson.dumps(body), headers=wire.headers)

    def _choice(self, index: int, text: str, told: Mapping[str, Any], wire: Asked) -> dict[str, Any]:
        calls = told.get("tool_calls")
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        if calls:
            message["tool_calls"] = [_whole_call(one) for one in calls]
        message |= told.get("message") or {}
        # NOTE: the platform's manual shows role and content in the choice itself; OpenAI's clients overlook them there.
        flat = {"role": "assistant", "content": message["content"]} if self.flat_choice else {}
        return {
            "index": index,
            **flat,
            "message": message,
            "logprobs": _logprobs(told.get("logprobs")),
            "finish_reason": _finish(told.get("finish_reason"), wire) or "stop",
        }

    def stream(self, given: AsyncIterator[InferenceResponse], request: InferenceRequest, call: Call) -> Reply:
        """The answer in chunks."""
        return events.reply(_chunks(given, request.wire), request.wire, call)


def _check(given: dict[str, Any], conversation: list[dict[str, Any]], metadata: ModelMetadata) -> None:
    """The rules between the fields."""
    fields.check_stream_options(given)
    tools.check(given, able=bool(metadata.extras.get("tools", True)))
    messages.check_end(conversation, given.get("continue_final_message", False))
    if given.get("top_logprobs") and not given.get("logprobs"):
        raise Refusal("top_logprobs: allowed only with logprobs = true", "top_logprobs", "invalid_value")


async def _chunks(given: AsyncIterator[InferenceResponse], wire: Asked) -> AsyncGenerator[dict[str, Any]]:
    """SPEC: a choice begins with its role, and ends with a chunk that has the reason and no text."""
    head = wire.head(_CHUNK)
    tail: dict[str, Any] = {"usage": None} if wire.includes_usage else {}

    def chunk(index: int, delta: dict[str, Any], logprobs: Any = None, reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": _logprobs(logprobs), "finish_reason": reason}
        return head | {"choices": [choice]} | tail

    for index in range(wire.choices):
        yield chunk(index, {"role": "assistant", "content": ""})
    open_, held, counted = set(range(wire.choices)), _Held(), None
    begun: set[tuple[int, int]] = set()
    async for part in given:
        told = part.parameters
        index = told.get("choice", 0)
        counted = told.get("usage") or counted
        if index not in open_:
            continue
        text, logprobs = "".join(texts(part)), held.add(index, told.get("logprobs"))
        if text:
            yield chunk(index, {"content": text}, held.take(index) if logprobs else None)
        if more := told.get("message"):
            yield chunk(index, dict(more))
        for one in told.get("tool_calls") or ():
            place = (index, one.get("index", 0))
            for delta in _call_deltas(one, begins=place not in begun):
                yield chunk(index, {"tool_calls": [delta]})
            begun.add(place)
        if reason := _finish(told.get("finish_reason"), wire):
            open_.discard(index)
            yield chunk(index, {}, held.take(index), reason)
    for index in sorted(open_):
        yield chunk(index, {}, held.take(index), "stop")
    if wire.includes_usage:
        yield head | {"choices": [], "usage": usage(counted)}


class _Held:
    """Entries of tokens whose text has not come yet, per choice."""

    def __init__(self) -> None:
        self._entries: dict[int, list[Any]] = {}

    def add(self, index: int, entries: Any) -> bool:
        """Keep them; whether there are any."""
        if entries:
            self._entries.setdefault(index, []).extend(entries)
        return index in self._entries

    def take(self, index: int) -> list[Any] | None:
        """All that were kept."""
        return self._entries.pop(index, None)


def _logprobs(entries: Any) -> dict[str, Any] | None:
    return None if entries is None else {"content": list(entries), "refusal": None}


def _finish(reason: Any, wire: Asked) -> str | None:
    """SPEC: the call of a function that the client named ends with `stop`."""
    return "stop" if reason == "tool_calls" and wire.named_tool else reason


def _whole_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    return {
        "id": call.get("id") or f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": function["name"], "arguments": function["arguments"]},
    }


def _call_deltas(call: Mapping[str, Any], begins: bool) -> Iterator[dict[str, Any]]:
    """SPEC: id, type and name come once, before the arguments, whatever another server repeats; the index always."""
    function, index = call.get("function", call), call.get("index", 0)
    if begins and function.get("name"):
        yield {
            "index": index,
            "id": call.get("id") or f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": function["name"], "arguments": ""},
        }
    if function.get("arguments"):
        yield {"index": index, "function": {"arguments": function["arguments"]}}
