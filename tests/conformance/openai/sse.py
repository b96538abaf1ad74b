"""An answer in server-sent events, read by the letter, and what must be true of its chunks."""

import json
import re
from typing import Any

Json = dict[str, Any]

_FRAME = re.compile(r"(?:data: (?P<data>[^\n]*)|: ?[^\n]*)\n\n")


def chunks_of(text: str) -> list[Json]:
    """The chunks before `[DONE]`: LF only, one line of JSON a frame, nothing after the end."""
    assert "\r" not in text
    data, at = [], 0
    while at < len(text):
        found = _FRAME.match(text, at)
        assert found, f"no frame at {text[at : at + 80]!r}"
        at = found.end()
        if found["data"] is not None:
            data.append(found["data"])
    assert data[-1] == "[DONE]"
    assert "[DONE]" not in data[:-1]
    return [json.loads(one) for one in data[:-1]]


def check(kind: str, chunks: list[Json]) -> None:
    """One of the properties that cases name."""
    CHECKS[kind](chunks)


def _framing(chunks: list[Json]) -> None:
    assert chunks
    heads = {(one["id"], one["created"], one["model"], one["object"], one["system_fingerprint"]) for one in chunks}
    assert len(heads) == 1


def _choices(chunks: list[Json]) -> dict[int, list[Json]]:
    found: dict[int, list[Json]] = {}
    for one in chunks:
        assert len(one["choices"]) <= 1
        for choice in one["choices"]:
            found.setdefault(choice["index"], []).append(choice)
    return found


def _chunks(chunks: list[Json]) -> None:
    """Role, texts, reason: in this order, for each choice."""
    assert {one["object"] for one in chunks} == {"chat.completion.chunk"}
    for choices in _choices(chunks).values():
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert choices[-1]["delta"] == {}
        assert choices[-1]["finish_reason"] in ("stop", "length", "tool_calls")
        assert {one["finish_reason"] for one in choices[:-1]} == {None}
        for one in choices[1:-1]:
            assert one["delta"].get("content") or one["delta"].get("tool_calls")
            assert "role" not in one["delta"]


def _comp_chunks(chunks: list[Json]) -> None:
    assert {one["object"] for one in chunks} == {"text_completion"}
    for choices in _choices(chunks).values():
        assert choices[-1]["finish_reason"] in ("stop", "length")
        assert choices[-1]["text"] == ""
        assert all(one["text"] and one["finish_reason"] is None for one in choices[:-1])


def _usage(chunks: list[Json]) -> None:
    assert all(one["usage"] is None and one["choices"] for one in chunks[:-1])
    assert chunks[-1]["choices"] == []
    usage = chunks[-1]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def _no_usage(chunks: list[Json]) -> None:
    assert all("usage" not in one for one in chunks)


def _logprobs(chunks: list[Json]) -> None:
    entries = [entry for choice in _choices(chunks)[0] if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    text = "".join(choice["delta"].get("content", "") for choice in _choices(chunks)[0])
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == text


CHECKS = {
    "framing": _framing,
    "chunks": _chunks,
    "comp_chunks": _comp_chunks,
    "usage": _usage,
    "no_usage": _no_usage,
    "logprobs": _logprobs,
}


def joined(chunks: list[Json], index: int = 0) -> str:
    """The text of a choice."""
    found = _choices(chunks)[index]
    return "".join(choice["delta"].get("content") or "" for choice in found)


def reasons(chunks: list[Json]) -> list[str]:
    """Why the choices ended."""
    return [choices[-1]["finish_reason"] for choices in _choices(chunks).values()]
