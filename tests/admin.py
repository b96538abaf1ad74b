"""The control API of a running gateway, as its banner tells of it."""

import re
from typing import Any

import httpx
from live import LiveGateway


class Admin:
    """The control API of a running gateway."""

    def __init__(self, live: LiveGateway, token: str = "") -> None:
        assert live.process.stdout is not None
        told: dict[str, str] = {}
        for line in live.process.stdout:
            if found := re.match(r"  (control|token) +(\S+)", line):
                told[found[1]] = found[2]
            if "control" in told and (token or "token" in told):
                break
        self.token = token or told["token"]
        self.url = told["control"]
        """Up to and with /control/v1."""

    def __call__(self, method: str, path: str, body: Any = None, code: int = 200) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        reply = httpx.request(method, self.url + path, json=body, headers=headers, timeout=30)
        assert code == reply.status_code, reply.text
        return reply.json() if reply.content else None
