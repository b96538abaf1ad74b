"""A websocket's side towards the client: uvicorn's."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One client's websocket."""

    async def send(self, message: Any) -> None:
        """As uvicorn does it; an answer instead of a websocket also ends the handshake, which it forgets to note."""
        if self.transport.is_closing():
            self.disconnected = True  # NOTE: uvloop refuses writes from `close` on, before `connection_lost` says so
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        """As uvicorn does it; for text that is no UTF-8 it would write a traceback into the log."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                if self.handshake_complete and not self.disconnected:
                    self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """As uvicorn does it, which expects a handshake to be over: before it no frame can say what was wrong."""
        if self.conn.close_sent is not None:
            super().handle_parser_exception()
            return
        self.disconnected = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1002})
        self.transport.close()
