"""A control plane in the test's own process, over a fleet that only remembers what it is told."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from gateway.accesslog import AccessLine
from gateway.config import Config, ConfigError, ServiceConfig, convert
from gateway.control.accounts import User
from gateway.control.rule import Prepared
from gateway.fleet import FleetSummary
from gateway.loads import Load
from gateway.passes import Entrance, Passes
from gateway.variants import Tallies

BASE = "http://control/control/v1"


class Fleet:
    """Serves whatever it is given, unless it is to fail."""

    def __init__(self) -> None:
        self.served: list[dict[str, ServiceConfig]] = []
        self.refuses = ""
        self.opens = Entrance("127.0.0.1", 9, Passes())

    async def apply(self, services: Mapping[str, ServiceConfig]) -> None:
        if self.refuses:
            raise ConfigError(self.refuses)
        self.served.append(dict(services))

    async def describe(self) -> FleetSummary:
        return FleetSummary(True, False)

    async def metrics(self) -> bytes:
        return b"# metrics\n"

    async def requests(self) -> Sequence[AccessLine]:
        at = datetime(2027, 1, 31, tzinfo=UTC)
        lost = AccessLine(at, "id-1", "10.0.0.1", "GET", "/nowhere", 404, 0.1, 0, 9)
        return [
            lost,
            AccessLine(at, "id-2", "10.0.0.1", "POST", "/v1/x", 200, 1.5, 10, 20, "v2", "flowers", "infer", 1),
        ]

    async def variants(self) -> Tallies:
        return {}

    async def loads(self) -> Mapping[str, Load]:
        return {}

    async def scale(self, deployment: str, nodes: int) -> None:
        """Nobody follows."""

    def entrance(self) -> Entrance:
        return self.opens


class Plane:
    """The control plane, and who may call it."""

    def __init__(self, folder: Path, services: dict[str, Any], **gateway: Any) -> None:
        for name in ("iris", "mnist"):
            (folder / "models" / name / "1").mkdir(parents=True, exist_ok=True)
            (folder / "models" / name / "1" / "model.onnx").touch()
        (folder / "models" / "server").mkdir(exist_ok=True)
        (folder / "models" / "server" / "model.toml").write_text('backend = "custom"\n[custom]\nurl = "http://a"\n')
        table = {"models_dir": "models", "gateway": {"data_dir": "data", **gateway}, "services": services}
        self.config = convert(table, Config, "test.toml")
        self.prepared = Prepared(self.config, folder)
        self.fleet = Fleet()
        self.prepared.controls(self.fleet)
        self.control = self.prepared.control
        self.admin = self.prepared.first_token or ""

    def user(self, name: str, **fields: Any) -> str:
        """A new user's token."""
        self.control.accounts.add(User(name, **{"role": "member", **fields}))
        return self.control.accounts.new_token(name, "", None)[1]

    async def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **options: Any
    ) -> httpx.Response:
        """One call, by the administrator unless another token is given; an empty one is left out."""
        token = self.admin if token is None else token
        headers = {**options.pop("headers", {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        transport = httpx.ASGITransport(app=self.prepared.app, raise_app_exceptions=False)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(method, BASE + path, json=body, headers=headers, **options)


@contextmanager
def plane(folder: Path, services: dict[str, Any] | None = None, **gateway: Any) -> Iterator[Plane]:
    """A control plane for the length of a `with` block."""
    made = Plane(folder, services or {}, **gateway)
    try:
        yield made
    finally:
        made.prepared.close()


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    """On an event loop of its own."""
    return asyncio.run(story())  # type: ignore[arg-type]
