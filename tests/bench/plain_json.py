"""For information: what a handler of the usual kind costs, with the standard library's json on plain ASGI."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from bare import model_from_command_line, serve

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def read(receive: Receive) -> bytes:
    """The whole body."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        parts.append(message["body"])
        more = message["more_body"]
    return b"".join(parts)


if __name__ == "__main__":
    model = model_from_command_line()

    async def predict(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer any call as a predict."""
        rows = np.array(json.loads(await read(receive))["instances"], np.float32)
        body = json.dumps({"predictions": model.run(rows).tolist()}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    serve(predict)
