"""Who is shown the names of all services."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from scene import on_loop, put

from gateway.config import Config, ServiceConfig
from gateway.plane import is_loopback
from gateway.server import Assembly

PROTECTED = {"secretive": ServiceConfig(app_auth=True, app_codes=("code",)), "open": ServiceConfig()}
ELSEWHERE = ("198.51.100.7", 4711)


async def page(
    assembly: Assembly, path: str, peer: tuple[str, int] = ELSEWHERE, key: str = "", json: Any = None
) -> httpx.Response:
    """What somebody there is shown."""
    transport = httpx.ASGITransport(assembly.gateway, client=peer)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as client:
        return await client.request("GET" if json is None else "POST", path, json=json)


def assembled(folder: Path, services: dict[str, ServiceConfig]) -> Assembly:
    """A gateway of those services, nothing loaded."""
    put(folder / "secretive" / "1" / "any")
    put(folder / "secretive" / "model.toml", 'backend = "echo"\nversions = [1, 7]')
    return Assembly(Config(services=services), folder, (folder,))


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("", False),
        ("x", False),
    ],
)
def test_local_addresses(peer: str, local: bool) -> None:
    """Whatever is none is from elsewhere."""
    assert is_loopback(peer) == local


@pytest.mark.parametrize("path", ["/metrics", "/statusz", "/readyz", "/monitoring/prometheus/metrics"])
def test_names_are_told_to_who_may_know_them(path: str, tmp_path: Path) -> None:
    """With a key of any service, on this machine, or where none needs a key. Version 7 is missing, hence not ready."""

    @on_loop
    async def run() -> None:
        assembly = assembled(tmp_path, PROTECTED)
        await assembly.models.start()
        await page(assembly, "/v1/models/secretive:predict", key="code", json={"inputs": [1]})
        assert "secretive" not in (await page(assembly, path)).text
        assert "secretive" not in (await page(assembly, path, key="wrong")).text
        assert "secretive" in (await page(assembly, path, key="code")).text
        assert "secretive" in (await page(assembly, path, ("127.0.0.1", 1))).text
        assembly.apply({"secretive": ServiceConfig()})
        assert "secretive" in (await page(assembly, path)).text
        await assembly.models.close()

    run()


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 401), ("/statusz", 401), ("/readyz", 503), ("/healthz", 200)]
)
def test_strangers_are_told_that_they_are(path: str, status: int, tmp_path: Path) -> None:
    """Probes go on working; what only operators need asks for a key."""

    @on_loop
    async def run() -> None:
        assert (await page(assembled(tmp_path, PROTECTED), path)).status_code == status

    run()
