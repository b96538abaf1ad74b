"""A service's gate on a clock that a test moves, and who comes to it."""

import asyncio

import pytest
from msgspec import Struct

from gateway.config import Config, convert
from gateway.errors import GatewayError
from gateway.gate import Visit, Who
from gateway.limits import Limits
from gateway.types import Call


class Caller(Struct):
    """Someone with a key, who came at that time."""

    key: str
    came: float
    id: str = ""

    def who(self) -> Who:
        return Who(self.key.encode(), self.key.encode(), self.id)

    def arrived(self) -> float:
        return self.came


CALL = Call("POST", "/", body=b"12345678")


class Door:
    """A service `s` with those limits, on a clock that stands still until it is moved."""

    def __init__(self, general: dict[str, object] | None = None, **own: object) -> None:
        self.now = 1000.0
        self.limits = Limits(config(general, **own), lambda: self.now)
        self.gate = self.limits.gate("s")

    def enter(self, key: str = "", call: Call = CALL, since: float | None = None) -> Visit:
        return self.gate.enter(call, Caller(key, self.now if since is None else since))

    def refused(self, kind: type[GatewayError], key: str = "", call: Call = CALL) -> GatewayError:
        with pytest.raises(kind) as caught:
            self.enter(key, call)
        return caught.value

    def change(self, **own: object) -> None:
        self.limits.adopt(config(None, **own))

    def counts(self) -> tuple[int, int]:
        return self.gate.running, len(self.gate.waiting)


def config(general: dict[str, object] | None = None, **own: object) -> Config:
    return convert({"limits": {"service": general or {}}, "services": {"s": {"limits": own}}}, Config, "test")


def named(deadline_ms: object) -> Call:
    return Call("POST", "/", headers=[(b"x-tensorgate-deadline-ms", str(deadline_ms).encode())])


async def waits(visit: Visit) -> "asyncio.Task[None]":
    """A task that waits for the visit's turn, and does so already."""
    task = asyncio.create_task(visit.come_in())
    await asyncio.sleep(0)
    return task
