"""The admin listener: it answers beside the gateway, and ends with it."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from gateway.admin import control
from gateway.config import ServiceConfig


class _Page:
    """A control plane that answers with one word."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def adopt(self, services: Mapping[str, ServiceConfig]) -> None:
        """Has no services."""

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_a_control_plane_answers_on_the_admin_socket_until_it_is_cancelled() -> None:
    """What leads the gateway gets its own port, and nothing of it outlives the gateway."""

    async def story() -> tuple[str, bool]:
        page = _Page()
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
            task = asyncio.create_task(control(page, sock))
            async with httpx.AsyncClient() as client:
                said = (await client.get(f"http://127.0.0.1:{port}/")).text
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return said, page.ended.is_set()

    assert asyncio.run(story()) == ("here", True)
