"""Server-sent events from an OpenAI-compatible server, as parts of an answer; an end without a word is a failure.

Source: the HTML standard, server-sent events; OpenAI's API reference, streaming.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec.structs import replace

from backends.remote.answers import Piece, document_of, part, pieces, usage_of
from backends.remote.client import Answer
from backends.remote.failures import bad_answer, broken_off, failure_in_stream
from gateway.types import InferenceResponse

_DONE = b"[DONE]"


async def parts(answer: Answer, first: int, secrets: Sequence[str]) -> AsyncGenerator[InferenceResponse]:
    """The parts as they come; the usage is told with the last of them. Raises GatewayError."""
    begun: set[int] = set()
    ended: set[int] = set()
    last: Piece | None = None
    async with aclosing(_documents(answer, secrets)) as documents:
        async for told in documents:
            document = document_of(told)
            found = [piece for piece in pieces(document, first, whole=False) if _tells(piece)]
            begun |= {choice.index + first for choice in document.choices}
            for piece in found:
                if last is not None:
                    yield part(last)
                last = piece if piece.told["finish_reason"] else None
                if last is None:
                    yield part(piece)
                else:
                    ended.add(piece.index)
            if usage := usage_of(document.usage):
                last = _counted(last, usage)
    if last is None or begun - ended:
        raise broken_off()
    yield part(last)


async def _documents(answer: Answer, secrets: Sequence[str]) -> AsyncGenerator[dict[str, Any]]:
    """What each event holds, up to the last."""
    async with aclosing(_data(answer)) as data:
        async for one in data:
            if one == _DONE:
                return
            try:
                document = msgspec.json.decode(one)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise bad_answer("an event is not JSON") from None
            if not isinstance(document, dict):
                raise bad_answer("an event is not a JSON object")
            if document.get("error") is not None or document.get("object") == "error":
                raise failure_in_stream(document, secrets) from RuntimeError(repr(document)[:1000])
            yield document


async def _data(answer: Answer) -> AsyncGenerator[bytes]:
    held: list[bytes] = []
    async with aclosing(answer.lines()) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                held.append(line[5:].removeprefix(b" "))
            elif not line and held:
                yield b"\n".join(held)
                held = []
    if held and b"\n".join(held) == _DONE:  # an event that is not ended has been cut off, but this one may be
        yield _DONE


def _tells(piece: Piece) -> bool:
    return bool(piece.text) or any(value is not None for value in piece.told.values())


def _counted(last: Piece | None, usage: dict[str, Any]) -> Piece | None:
    """The last piece with the count; a count in the middle of an answer is overtaken by the one at its end."""
    return None if last is None else replace(last, told=last.told | usage)
