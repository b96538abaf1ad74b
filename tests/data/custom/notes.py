"""A user's own HTTP server, for the tests of custom services."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

left: list[str] = []
"""What clients have left in the middle of."""


async def told(request: Request) -> Response:
    """What the server was asked."""
    body = await request.body()
    page = {
        "method": request.method,
        "target": request.scope["raw_path"].decode(),
        "query": request.url.query,
        "headers": [[name.decode(), value.decode("latin-1")] for name, value in request.headers.raw],
        "size": len(body),
        "arguments": sys.argv[1:],
        "secret": os.environ.get("GATEWAY_SECRET", ""),
        "colour": os.environ.get("COLOUR", ""),
        "pid": os.getpid(),
        "left": left,
    }
    reply = JSONResponse(page, 207, {"x-own": "kept"})
    reply.set_cookie("first", "1")
    reply.set_cookie("second", "2")
    return reply


async def events(request: Request) -> Response:
    """Server-sent events, until the client leaves."""

    async def stream() -> AsyncIterator[str]:
        try:
            for number in range(1000):
                yield f"data: {number}\n\n"
                await asyncio.sleep(0.05)
        finally:
            left.append("events")

    return StreamingResponse(stream(), media_type="text/event-stream")


async def slow(request: Request) -> Response:
    """An answer that never comes."""
    try:
        while not await request.is_disconnected():  # noqa: ASYNC110 - starlette has no event for it
            await asyncio.sleep(0.02)
        left.append("slow")
    except ClientDisconnect:
        left.append("slow")
    return PlainTextResponse("")


async def breaks(request: Request) -> Response:
    """An answer that breaks off."""

    async def stream() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.sleep(0.1)
        os._exit(3)

    return StreamingResponse(stream(), headers={"content-length": "8"})


async def ready(request: Request) -> Response:
    """Whether the server can work."""
    return PlainTextResponse("ready")


async def talk(socket: WebSocket) -> None:
    """Repeats what it hears."""
    offered = socket.scope["subprotocols"]
    if "refused" in offered:
        await socket.send_denial_response(PlainTextResponse("not you", 418))
        return
    await socket.accept(offered[-1] if offered else None)
    while (message := await socket.receive())["type"] == "websocket.receive":
        if message.get("text") == "bye":
            await socket.close(4001, "so long")
            return
        if message.get("text") is not None:
            await socket.send_text(f"{socket.headers.get('x-forwarded-prefix')} {message['text']}")
        else:
            await socket.send_bytes(message["bytes"])
    left.append(f"talk {message['code']}")


app = Starlette(
    routes=[
        Route("/events", events),
        Route("/slow", slow),
        Route("/breaks", breaks),
        Route("/ready", ready),
        WebSocketRoute("/talk", talk),
        Route("/{path:path}", told, methods=["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
    ]
)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=int(os.environ["PORT"]), log_level="error")
