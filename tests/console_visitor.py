"""Somebody at the console without a browser: follows forms as a browser would, cookies and all."""

import re
from typing import Any

import httpx
from control_plane import Plane

BASE = "http://control"


class Visitor:
    """One browser's worth of cookies."""

    def __init__(self, made: Plane, **headers: str) -> None:
        transport = httpx.ASGITransport(app=made.prepared.app, raise_app_exceptions=False)  # type: ignore[arg-type]
        self.client = httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)
        self.csrf = ""

    async def sign_in(self, token: str, to: str = "") -> httpx.Response:
        """Through the form."""
        reply = await self.client.post("/console/sign-in", data={"token": token, "to": to})
        if reply.status_code == 303:
            await self.get("/services")
        return reply

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """A page."""
        reply = await self.client.get(f"/console{path}", **options)
        if found := re.search(r'name="csrf-token" content="([^"]*)"', reply.text):
            self.csrf = found[1]
        return reply

    async def post(self, path: str, csrf: str | None = None, **fields: Any) -> httpx.Response:
        """A form, as the page sends it."""
        data = {"csrf": self.csrf if csrf is None else csrf, **fields}
        return await self.client.post(f"/console{path}", data=data)


async def visitor(made: Plane, token: str | None = None, **headers: str) -> Visitor:
    """Signed in, as the administrator unless another token is given."""
    made_visitor = Visitor(made, **headers)
    await made_visitor.sign_in(made.admin if token is None else token)
    return made_visitor
