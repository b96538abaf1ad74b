"""Somebody at the console without a browser: follows forms as a browser would, cookies and all."""

import html
import re
from typing import Any

import httpx
from control_plane import Plane

BASE = "http://control"
SERVICES: dict[str, Any] = {
    "flowers": {"model": "iris", "owner": "ada", "project": "vision", "sharing": "ro"},
    "digits": {"model": "mnist", "owner": "ada", "duration": "8h", "canary": {"model": "iris", "weight": 20}},
}
NEW = {
    "name": "fresh", "type": "any", "model": "iris", "model_version": "0", "version": "1.0.0", "aliases": "a, b",
    "sharing": "none", "duration": "8h", "environment": "LEVEL=3\nNAME=x=y", "parameters": "", "node.threads": "2",
    "node.memory_mib": "0", "node.device": "auto", "node.driver": "", "nodes_allowed": "", "mode": "manual",
    "nodes": "1", "app_auth_shown": "1", "limits.requests_per_second": "", "limits.concurrency": "4",
    "limits.queue": "", "limits.deadline_ms": "",
}  # fmt: skip


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


def words(page: str) -> str:
    """What is to be read on a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
