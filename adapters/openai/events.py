"""Answers in parts, as server-sent events: a line of JSON each, `[DONE]` at the end, failures told and no mere end.

Source: OpenAI's API reference, streaming; what openai-python makes of it, _streaming.py.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson

from adapters.openai import errors
from adapters.openai.asked import Asked
from gateway.errors import GatewayError
from gateway.types import Call, Reply

MEDIA_TYPE = "text/event-stream; charset=utf-8"
HEADERS = (("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no"))
DONE = b"data: [DONE]\n\n"


def reply(chunks: AsyncGenerator[dict[str, Any]], asked: Asked, call: Call) -> Reply:
    """The chunks as a stream."""
    return Reply(_frames(chunks, call), media_type=MEDIA_TYPE, headers=HEADERS + asked.headers)


async def _frames(chunks: AsyncGenerator[dict[str, Any]], call: Call) -> AsyncGenerator[bytes]:
    # SPEC: clients take an end without a word for success, so whatever fails here is told in the stream.
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                yield _frame(chunk)
        except GatewayError as error:
            yield _frame({"error": errors.describe(error, call)})
        except Exception:
            yield _frame({"error": errors.internal(call.id)})
        yield DONE


def _frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
