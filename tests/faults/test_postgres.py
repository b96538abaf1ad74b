"""The control plane on a real PostgreSQL server: kept over restarts, and calm while the server is away."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from admin import Admin
from live import LiveGateway, becomes, gateway

MODELS = Path(__file__).resolve().parents[2] / "configs" / "models"
FOUND = shutil.which("pg_ctl") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")), "")
ROWS = {"instances": [[5.1, 3.5, 1.4, 0.2]]}

pytestmark = pytest.mark.skipif(not FOUND, reason="PostgreSQL is not installed (apt-get install postgresql)")


class Server:
    """A PostgreSQL server on a free port, with one database."""

    def __init__(self, folder: Path) -> None:
        self._data = folder
        self._bin = Path(FOUND).resolve().parent
        # It refuses to run as root; Debian's package makes a user for it.
        self._as = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._run("initdb", "--auth=trust", "--username=gate", "--no-sync")
        self.url = f"postgresql://gate@127.0.0.1:{self._port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as, self._bin / program, "-D", self._data, *arguments],
            cwd="/", check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip

    def start(self) -> None:
        options = f"-p {self._port} -k {self._data} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-w", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")


@pytest.fixture
def server() -> Iterator[Server]:
    # pytest's own folders are for one user only, who may not be the server's.
    with tempfile.TemporaryDirectory() as folder:
        made = Server(Path(folder))
        made.start()
        try:
            yield made
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                made.stop()


def predict(live: LiveGateway, **headers: str) -> httpx.Response:
    return httpx.post(f"{live.url}/services/story/v1/models:predict", json=ROWS, headers=headers, timeout=30)


def test_services_are_kept_by_a_server(server: Server, tmp_path: Path) -> None:
    """A service with a key and a canary outlives the gateway; while the server is away, requests are answered."""
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'models_dir = "{MODELS}"\n[gateway]\ndata_dir = "data"\nadmin_port = 0\nstore = "{server.url}"\n'
    )
    with gateway(config) as live:
        admin = Admin(live)
        admin("POST", "/services", {"name": "story", "model": "iris", "app_auth": True}, 201)
        code = admin("POST", "/services/story/keys", {"id": "ci"}, 201)["code"]
        admin("PUT", "/services/story/canary", {"weight": 30, "version": "2.0.0"})
        admin("POST", "/rollback", {"revision": admin("GET", "/revisions")[1]["number"]})
        admin("PUT", "/services/story/canary", {"weight": 50, "version": "2.0.0"})
        assert not list((tmp_path / "data").glob("*.db"))
    with gateway(config) as live:
        admin = Admin(live, admin.token)
        key = {"Authorization": f"APPCODE {code}"}
        variants = [predict(live, **key).headers["x-tensorgate-variant"] for _ in range(10)]
        assert variants.count("canary") == 5
        assert "story" in {one["service"] for one in admin("GET", "/events")}
        server.stop()
        assert predict(live, **key).status_code == 200
        refused = httpx.patch(
            f"{admin.url}/services/story", json={"version": "3.0.0"}, headers={"Authorization": f"Bearer {admin.token}"}
        )
        assert (refused.status_code, refused.json()["error"]["message"]) == (
            503, "the control plane's database does not answer; nothing has been changed"
        )  # fmt: skip
        assert predict(live, **key).status_code == 200
        server.start()
        assert becomes(lambda: admin("PATCH", "/services/story", {"version": "3.0.0"})["version"] == "3.0.0", 10.0)
