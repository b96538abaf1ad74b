"""The admin listener: it answers beside the gateway, and ends with it."""

import asyncio
import socket
from typing import Any

import httpx
import pytest

from gateway.admin import control
from gateway.fleet import Fleet


class _Page:
    """A control plane that answers with one word."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.ended = asyncio.Event()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_a_control_plane_answers_on_the_admin_socket_until_it_is_cancelled() -> None:
    """What leads the gateway gets its own port, and nothing of it outlives the gateway."""

    async def story() -> tuple[str, bool]:
        made: list[_Page] = []

        def make(fleet: Fleet) -> _Page:
            made.append(_Page(fleet))
            return made[0]

        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
            task = asyncio.create_task(control(make, object(), sock))  # type: ignore[arg-type]
            async with httpx.AsyncClient() as client:
                said = (await client.get(f"http://127.0.0.1:{port}/")).text
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return said, made[0].ended.is_set()

    assert asyncio.run(story()) == ("here", True)
