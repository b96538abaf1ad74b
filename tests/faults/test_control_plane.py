"""The control plane on a running gateway: it survives restarts, kills and a database that does not answer."""

import contextlib
import random
import resource
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from admin import Admin
from live import LiveGateway, becomes, gateway

from gateway.cli import main
from gateway.control.store import FILE, Store
from gateway.paths import PAGES

MODELS = Path(__file__).resolve().parents[2] / "configs" / "models"
CONFIG = """
models_dir = "models"
[gateway]
data_dir = "data"
admin_port = 0
device = "cpu"
[services.flowers]
model = "iris"
"""
ROWS = {"instances": [[5.1, 3.5, 1.4, 0.2]]}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration beside two models."""
    for name in ("iris", "mnist"):
        shutil.copytree(MODELS / name, tmp_path / "models" / name)
    (tmp_path / "gateway.toml").write_text(CONFIG)
    return tmp_path / "gateway.toml"


def predict(live: LiveGateway, service: str, **headers: str) -> httpx.Response:
    return httpx.post(f"{live.url}/services/{service}/v1/models:predict", json=ROWS, headers=headers, timeout=30)


def told(admin: Admin) -> list[dict[str, Any]]:
    """What is said of the services, less how long their models took to load."""
    return [{key: one[key] for key in one if key != "models"} for one in admin("GET", "/services")["services"]]


def test_the_manuals_story(config: Path) -> None:
    """Created, keyed, given a canary of 30 %, taken over, expired; and after a restart all of it is still so."""
    with gateway(config) as live:
        admin = Admin(live)
        admin("POST", "/services", {"name": "story", "model": "iris", "duration": "8h"}, 201)
        code = admin("POST", "/services/story/keys", {"id": "ci"}, 201)["code"]
        admin("PATCH", "/services/story", {"app_auth": True})
        key = {"Authorization": f"APPCODE {code}"}
        assert predict(live, "story").status_code == 401
        admin("PUT", "/services/story/canary", {"weight": 30, "version": "2.0.0"})
        variants = [predict(live, "story", **key).headers["x-tensorgate-variant"] for _ in range(100)]
        assert variants.count("canary") == 30
        for wish, variant in (("Always", "canary"), ("Never", "stable")):
            assert {predict(live, "story", **key, Canary=wish).headers["x-tensorgate-variant"] for _ in range(5)} == {
                variant
            }
        assert predict(live, "story", **key, Canary="Maybe").status_code == 400
        admin("POST", "/services/story/canary/takeover")
        assert admin("GET", "/services/story")["version"] == "2.0.0"
        admin("POST", "/services", {"name": "brief", "model": "iris", "duration": "2s"}, 201)
        assert predict(live, "brief").status_code == 200
        assert becomes(lambda: predict(live, "brief").status_code == 503, 5.0)
        assert "has expired" in predict(live, "brief").text
        assert becomes(lambda: admin("GET", "/services/brief")["config"]["state"] == "expired", 5.0)
        admin("POST", "/services", {"name": "halted", "model": "iris"}, 201)
        admin("POST", "/services/halted/stop", {"reason": "for maintenance"})
        before, token = told(admin), admin.token
    with gateway(config) as live:
        admin = Admin(live, token)
        assert before == told(admin)
        assert predict(live, "story").status_code == 401
        assert predict(live, "story", **key).status_code == 200
        assert "for maintenance" in predict(live, "halted").text
        assert predict(live, "brief").status_code == 503
        admin("POST", "/services/brief/start", {"duration": ""})
        assert predict(live, "brief").status_code == 200


@contextlib.contextmanager
def asked(live: LiveGateway, service: str) -> Iterator[list[int]]:
    """Requests one after the other, from two clients, for the length of a `with` block; their statuses."""
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        with httpx.Client(timeout=30) as client:
            while not over.is_set():
                url = f"{live.url}/services/{service}/v1/models:predict"
                statuses.append(client.post(url, json=ROWS).status_code)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_database_that_does_not_answer_loses_no_request(config: Path) -> None:
    """Locked, then deleted: changes are refused, requests are answered as before."""
    with gateway(config) as live:
        admin = Admin(live)
        with asked(live, "flowers") as statuses:
            other = sqlite3.connect(config.parent / "data" / FILE, isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            refused = admin("PATCH", "/services/flowers", {"duration": "1h"}, 503)
            assert "nothing has been changed" in refused["error"]["message"]
            other.execute("ROLLBACK")
            other.close()
            admin("PATCH", "/services/flowers", {"duration": "2h"})
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (config.parent / "data" / name).unlink(missing_ok=True)
            lost = admin("POST", "/services", {"name": "made", "model": "iris"}, 503)
            assert "nothing has been changed" in lost["error"]["message"]
            assert predict(live, "made").status_code == 404
        assert set(statuses) == {200}
        assert len(statuses) > 20


def test_a_disk_that_is_full_loses_no_request(config: Path) -> None:
    """Neither log nor store can be written: changes are refused, requests are answered; with room again all is well."""
    with gateway(config) as live:
        admin = Admin(live)
        admin("PATCH", "/services/flowers", {"duration": "1h"})
        with asked(live, "flowers") as statuses:
            limits = resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
            refused = admin("PATCH", "/services/flowers", {"duration": "2h"}, 503)
            assert "nothing has been changed" in refused["error"]["message"]
            time.sleep(0.5)  # for the access log, which is written a few times a second
            assert live.process.poll() is None
            resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, limits)
            admin("PATCH", "/services/flowers", {"duration": "3h"})
        assert set(statuses) == {200}
        assert len(statuses) > 20
        live.wait_for_log("dropped_lines")
        assert admin("GET", "/services/flowers")["config"]["duration"] == "3h"


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_kills_leave_every_revision_whole(config: Path, kills: int) -> None:
    """SIGKILL at random moments of changes: the store opens again, and what it has is whole."""
    chance = random.Random(3)
    data = config.parent / "data"
    with gateway(config) as live:
        token = Admin(live).token
    for turn in range(kills):
        live = LiveGateway(str(config))
        try:
            admin = Admin(live, token)
            pids = threading.Timer(chance.uniform(0.02, 0.4), live.process.kill)
            pids.start()
            with contextlib.suppress(httpx.HTTPError):
                for number in range(10_000):
                    services = {f"s{one}": {"model": "iris", "reason": f"{turn}.{number}"} for one in range(20)}
                    admin("POST", "/apply", {"services": services})
            pids.join()
        finally:
            live.stop()
        store = Store(f"sqlite:///{data / FILE}", data)
        for told in store.revisions(500):
            revision = store.revision(told.number)
            assert revision is not None
            reasons = {one.reason for name, one in revision.services.items() if name.startswith("s")}
            assert len(reasons) <= 1, told.number
            assert len(revision.services) in (1, 21)
        store.close()


def test_the_first_token_is_shown_once(config: Path) -> None:
    """The second start does not print one."""
    with gateway(config) as live:
        token = Admin(live).token
    with gateway(config) as live:
        admin = Admin(live, token)
        assert admin("GET", "/me")["user"]["name"] == "admin"
        live.process.terminate()
        assert live.process.stdout is not None
        assert "token" not in live.process.stdout.read()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_operators_pages_move_to_the_admin_listener(config: Path, workers: str) -> None:
    """With a control plane the services' port shows probes only, unless the file says otherwise."""
    with gateway(config, "--workers", workers) as live:
        admin = Admin(live).url.removesuffix("/control/v1")
        on_port = {path: httpx.get(f"{live.url}{path}").status_code for path in PAGES}
        assert on_port == {"/healthz": 200, "/readyz": 200, "/metrics": 404, "/statusz": 404}
        assert "tensorgate_requests_total" in httpx.get(f"{admin}/metrics").text
        assert httpx.get(f"{admin}/statusz").json()["ready"]
        assert main(["models", "--url", admin]) == 0
    config.write_text(CONFIG.replace("admin_port = 0", 'admin_port = 0\noperator_pages = "always"'))
    with gateway(config, "--workers", workers) as live:
        assert {httpx.get(f"{live.url}{path}").status_code for path in PAGES} == {200}


def test_other_addresses_need_a_token_of_the_files(config: Path) -> None:
    """A control plane that other machines can reach does not start without one."""
    config.write_text(CONFIG.replace("admin_port = 0", 'admin_port = 0\nadmin_host = "0.0.0.0"'))
    with pytest.raises(AssertionError, match=r"gateway\.admin_token"):
        LiveGateway(str(config))


def test_the_file_is_read_again_on_a_signal(config: Path) -> None:
    """Its services become a revision; those of the API stay, and a file that is wrong changes nothing."""
    with gateway(config) as live:
        admin = Admin(live)
        admin("POST", "/services", {"name": "made", "model": "iris"}, 201)
        config.write_text(CONFIG + 'owner = "ada"\n[services.digits]\nmodel = "mnist"\n')
        live.process.send_signal(signal.SIGHUP)
        names = ["digits", "flowers", "made"]
        assert becomes(lambda: sorted(one["name"] for one in admin("GET", "/services")["services"]) == names, 10.0)
        assert admin("GET", "/services/flowers")["owner"] == "ada"
        told = [(one["actor"], one["kind"], one["service"]) for one in admin("GET", "/events")[:2]]
        assert sorted(told) == [("file", "seed", "digits"), ("file", "seed", "flowers")]
        revision = admin("GET", "/revisions")[0]["number"]
        config.write_text(CONFIG + "[services.wrong")
        live.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert admin("GET", "/revisions")[0]["number"] == revision
        config.write_text(CONFIG)
        live.process.send_signal(signal.SIGHUP)
        assert becomes(lambda: admin("GET", "/services/flowers")["owner"] != "ada", 10.0)
        assert admin("GET", "/revisions")[0]["number"] == revision + 1
        assert predict(live, "made").status_code == predict(live, "flowers").status_code == 200


def test_new_processes_serve_what_the_control_plane_has_decided(config: Path) -> None:
    """A reload of many processes keeps services that were made by API before this start."""
    with gateway(config) as live:
        admin = Admin(live)
        admin("POST", "/services", {"name": "made", "model": "iris"}, 201)
    with gateway(config, "--workers", "2") as live:
        live.process.send_signal(signal.SIGHUP)
        live.wait_for_log("reloaded: every process is a new one", 60.0)
        for name in ("made", "flowers"):
            assert {predict(live, name).status_code for _ in range(20)} == {200}
