"""What an answer in parts says, however it was cut into parts: two of them are compared by that."""

from collections.abc import Iterator
from typing import Any

import msgspec

GROWING = frozenset({"arguments", "content", "reasoning_content", "refusal", "text"})
"""Fields whose texts are pieces of one."""

_EVENTS, _FRAMES, _LINES = "text/event-stream", "application/vnd.amazon.eventstream", "application/x-ndjson"
_PRELUDE, _CRC = 12, 4


def is_streamed(media_type: str) -> bool:
    """Whether an answer of that type comes in parts that each say something."""
    return media_type.startswith((_EVENTS, _FRAMES, _LINES))


def said(body: bytes, media_type: str) -> dict[str, Any]:
    """Path to what all parts together say there: one text of its pieces, else the values, repetitions left out."""
    gathered: dict[str, Any] = {}
    for line in _payload(body, media_type).splitlines():
        text = line.removeprefix(b"data:").strip()
        if not text or line.startswith(b":"):
            continue
        try:
            part = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            part = text.decode("utf-8", "replace")
        for path, value in _leaves(part, ""):
            _add(gathered, path, value)
    return gathered


def _payload(body: bytes, media_type: str) -> bytes:
    """The body; of frames, what is in them: after its length and that of its headers, a frame has both and its CRC."""
    if not media_type.startswith(_FRAMES):
        return body
    parts, at = [], 0
    while at + _PRELUDE <= len(body):
        size, headers = (int.from_bytes(body[at + place : at + place + 4]) for place in (0, 4))
        if size < _PRELUDE + headers + _CRC:
            break
        parts.append(body[at + _PRELUDE + headers : at + size - _CRC])
        at += size
    return b"".join(parts)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one, f"{path}[]")
    else:
        yield path, value


def _add(gathered: dict[str, Any], path: str, value: Any) -> None:
    if path.rpartition(".")[2] in GROWING and isinstance(value, str):
        gathered[path] = gathered.get(path, "") + value
        return
    values = gathered.setdefault(path, [])
    if isinstance(values, list) and (not values or values[-1] != value):
        values.append(value)
