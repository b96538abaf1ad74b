"""A running gateway with a control plane, and its first administrator."""

from functools import cached_property
from typing import Any

import httpx
from admin import Admin
from live import LiveGateway


class Platform:
    """A gateway with a control plane, and its first administrator."""

    def __init__(self, live: LiveGateway) -> None:
        self.live = live
        self.admin = Admin(live)
        """Calls the control API."""
        self.url = self.admin.url.removesuffix("/control/v1")
        """The admin listener."""

    @cached_property
    def cookies(self) -> list[dict[str, str]]:
        """What a browser has in which the administrator has signed in to the console, as Playwright takes it."""
        reply = httpx.post(f"{self.url}/console/sign-in", data={"token": self.admin.token})
        return [{"name": name, "value": value, "url": self.url} for name, value in reply.cookies.items()]

    def have(self, name: str, **fields: Any) -> None:
        """A service of that name, with these fields if it has to be made."""
        canary = fields.pop("canary", None)
        if any(one["name"] == name for one in self.admin("GET", "/services")["services"]):
            return
        self.admin("POST", "/services", {"name": name, **fields}, 201)
        if canary is not None:
            self.admin("PUT", f"/services/{name}/canary", canary)

    def metric(self, name: str) -> float:
        """What the samples of that name add up to on the admin listener."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)
