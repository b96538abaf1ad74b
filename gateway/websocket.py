"""A websocket's side towards the client: uvicorn's."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One client's websocket."""

    async def send(self, message: Any) -> None:
        """As uvicorn does it; an answer instead of a websocket also ends the handshake, which it forgets to note."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True
