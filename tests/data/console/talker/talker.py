"""A language service of somebody's own, as the platform's manual asks for one: it says a word, and waits a bit."""

import asyncio
import json
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

WORDS = 1000
TRAP = "<img src=x onerror=alert(1)>"


async def models(request: Request) -> Response:
    """The one model."""
    model = {"id": "talker", "object": "model", "created": 1, "owned_by": "me"}
    return JSONResponse({"object": "list", "data": [model]})


async def chat(request: Request) -> Response:
    """Words as events, for half a minute; told to `break`, an error after three; not streamed, the manual's form."""
    asked = await request.json()
    text = asked["messages"][-1]["content"]
    if not asked.get("stream"):
        return JSONResponse({"choices": [{"role": "assistant", "content": TRAP}]})

    async def events() -> AsyncIterator[str]:
        yield _event({"role": "assistant", "content": ""})
        for number in range(WORDS):
            await asyncio.sleep(0.03)
            if text == "break" and number == 3:
                yield f"data: {json.dumps({'error': {'message': 'the model has broken'}})}\n\n"
                return
            yield _event({"content": f"{TRAP if number == 1 else number} "})
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(delta: dict[str, str]) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': None}]})}\n\n"


app = Starlette(
    routes=[Route("/v1/models", models), Route("/v1/chat/completions", chat, methods=["POST"])],
)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=int(os.environ["PORT"]), log_level="error")
