"""The commands that talk to a running gateway's control plane, as somebody would type them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from admin import Admin
from live import LiveGateway, gateway

MODELS = Path(__file__).resolve().parents[3] / "configs" / "models"
CONFIG = """
models_dir = "models"
[gateway]
data_dir = "data"
admin_port = 0
device = "cpu"
[services.digits]
model = "mnist"
"""

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with a control plane."""
    folder = tmp_path_factory.mktemp("commands")
    for name in ("iris", "mnist"):
        shutil.copytree(MODELS / name, folder / "models" / name)
    (folder / "gateway.toml").write_text(CONFIG)
    with gateway(folder / "gateway.toml") as live:
        yield live


@pytest.fixture(scope="module")
def admin(live: LiveGateway) -> Admin:
    """Its control plane, and the first administrator's token."""
    return Admin(live)


@pytest.fixture
def run(admin: Admin) -> Command:
    """Run a command line."""
    url = admin.url.removesuffix("/control/v1")

    def run(*arguments: str, code: int = 0, token: str = admin.token) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *arguments],
            env=os.environ | {"TENSORGATE_ADMIN_URL": url, "TENSORGATE_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
        )
        assert code == done.returncode, done.stderr
        return done

    return run


def predict(live: LiveGateway, service: str, **headers: str) -> httpx.Response:
    path = f"{live.url}/services/{service}/v1/models:predict"
    return httpx.post(path, json={"instances": [[5.1, 3.5, 1.4, 0.2]]}, headers=headers)


def test_life_of_a_service(live: LiveGateway, run: Command) -> None:
    """Created, keyed, given a canary, stopped, started again and deleted: each holds from the next request on."""
    run("services", "create", "flowers", "--model", "iris", "--duration", "8h", "--set", "limits.concurrency=4")
    assert predict(live, "flowers").status_code == 200
    code = json.loads(run("keys", "create", "flowers", "ci", "--json").stdout)["code"]
    run("services", "edit", "flowers", "--set", "app_auth=true")
    assert predict(live, "flowers").status_code == 401
    assert predict(live, "flowers", Authorization=f"APPCODE {code}").status_code == 200
    newer = json.loads(run("keys", "rotate", "flowers", "ci", "--overlap", "0s", "--json").stdout)["code"]
    assert predict(live, "flowers", Authorization=f"APPCODE {code}").status_code == 401
    assert predict(live, "flowers", Authorization=f"APPCODE {newer}").status_code == 200
    run("canary", "publish", "flowers", "--weight", "100")
    assert predict(live, "flowers", Authorization=f"APPCODE {newer}").headers["x-tensorgate-variant"] == "canary"
    shown = run("services", "show", "flowers").stdout.splitlines()
    assert "canary    the same model, version 1.0.0, 100 % of the requests" in shown
    run("canary", "takeover", "flowers")
    assert "x-tensorgate-variant" not in predict(live, "flowers", Authorization=f"APPCODE {newer}").headers
    run("services", "stop", "flowers", "--reason", "for maintenance")
    assert predict(live, "flowers", Authorization=f"APPCODE {newer}").status_code == 503
    shown = run("services", "start", "flowers", "--duration", "1h", "--nodes", "2").stdout
    assert re.search(r"^state +running$", shown, re.MULTILINE)
    assert predict(live, "flowers", Authorization=f"APPCODE {newer}").status_code == 200
    run("services", "adjust-duration", "flowers", "unlimited")
    assert re.search(r"^flowers +running .* unlimited +admin$", run("services", "list").stdout, re.MULTILINE)
    run("keys", "revoke", "flowers", "ci-r2")
    assert predict(live, "flowers", Authorization=f"APPCODE {newer}").status_code == 401
    run("services", "delete", "flowers")
    assert predict(live, "flowers").status_code == 404


def test_edit_keeps_what_it_does_not_name(run: Command) -> None:
    """A field inside a table is changed without its neighbours."""
    run("services", "create", "kept", "--model", "iris", "--set", "limits.concurrency=4")
    run("services", "edit", "kept", "--set", "limits.queue=3", "--set", 'aliases=["other"]')
    config = json.loads(run("services", "show", "kept", "--json").stdout)["config"]
    assert (config["limits"]["concurrency"], config["limits"]["queue"], config["aliases"]) == (4, 3, ["other"])
    run("services", "delete", "kept")


def test_plan_apply_and_roll_back(live: LiveGateway, run: Command, tmp_path: Path) -> None:
    """A plan changes nothing, an apply everything or nothing, and a roll-back brings back what was; but no key."""
    file = tmp_path / "services.toml"
    file.write_text('[services.one]\nmodel = "iris"\n[services.two]\nmodel = "nope"\n')
    refused = run("apply", "-f", str(file), code=1).stderr
    assert "services.two.model: there is no model package 'nope'; there are: iris, mnist" in refused
    assert predict(live, "one").status_code == 404
    file.write_text('[services.one]\nmodel = "iris"\n[services.two]\nmodel = "iris"\n')
    assert run("plan", "-f", str(file)).stdout.splitlines()[0] == "+ one"
    assert predict(live, "one").status_code == 404
    run("apply", "-f", str(file))
    assert predict(live, "two").status_code == 200
    code = json.loads(run("keys", "create", "one", "ci", "--json").stdout)["code"]
    run("services", "edit", "one", "--set", "app_auth=true")
    number = run("revisions").stdout.splitlines()[1].split()[0]
    run("keys", "revoke", "one", "ci")
    run("services", "delete", "two")
    run("rollback", number)
    assert predict(live, "two").status_code == 200
    assert predict(live, "one", Authorization=f"APPCODE {code}").status_code == 401
    run("services", "delete", "one", "two")
    assert run("drift").stdout == "nothing would change\n"


def test_scaling_is_simulated(run: Command, tmp_path: Path) -> None:
    """The plan of a rule over a series of loads, with the limit that bound each step."""
    (tmp_path / "rule.toml").write_text(
        'max = 8\nup = { max_nodes = 2 }\nexpectations = [{ metric = "concurrency", value = 4 }]\n'
    )
    (tmp_path / "load.csv").write_text("0,concurrency=16\n10,concurrency=16\n")
    told = run("scale", "simulate", "-f", str(tmp_path / "rule.toml"), "--series", str(tmp_path / "load.csv"), "--json")
    decisions = json.loads(told.stdout)
    assert [(one["nodes"], one["target"]) for one in decisions] == [(1, 3), (3, 5)]
    assert {"+2 nodes at a time"} == {one["rule"] for one in decisions}


def test_members_see_what_is_theirs(run: Command) -> None:
    """A member's token makes services of its own, and does not show those of others."""
    run("users", "add", "ada", "--project", "vision")
    token = json.loads(run("tokens", "create", "--user", "ada", "--json").stdout)["text"]
    run("services", "create", "mine", "--model", "iris", token=token)
    listed = run("services", "list", token=token).stdout
    assert "mine" in listed
    assert "digits" not in listed
    assert "for administrators only" in run("users", "list", token=token, code=1).stderr
    run("services", "delete", "mine", token=token)
    run("users", "remove", "ada")
    assert "the token is not valid" in run("services", "list", token=token, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("services", "show", "nobody"), "there is no service 'nobody'"),
        (("services", "create", "a b", "--model", "iris"), "name: expected letters, digits"),
        (("services", "create", "x", "--model", "iris", "--type", "tf"), "type: Invalid enum value 'tf'"),
        (("services", "create", "digits", "--model", "iris"), "name: there is a service 'digits' already"),
        (("services", "create", "x", "--duration", "forever"), 'duration: Expected a duration such as "90s"'),
        (("services", "create", "x", "--version", "1"), 'version: Expected three numbers, such as "1.0.0"'),
        (("services", "edit", "digits"), "nothing to change"),
        (("services", "edit", "digits", "--set", "colour"), "expected FIELD=VALUE"),
        (("canary", "weight", "digits", "30"), "the service has no canary"),
        (("keys", "rotate", "digits", "none"), "the service has no key 'none'"),
        (("rollback", "99999"), "there is no revision 99999"),
        (("plan", "-f", "/does/not/exist.toml"), "exist.toml: cannot be read"),
    ],
)
def test_mistakes_are_told(run: Command, arguments: tuple[str, ...], text: str) -> None:
    """One line on stderr says what is wrong, with the field it is about, and the exit code is 1."""
    told = run(*arguments, code=1).stderr
    assert text in told
    assert len(told.splitlines()) == 1


def test_events_tell_who_did_what(run: Command) -> None:
    """The newest first, with the actor."""
    run("services", "create", "told", "--model", "iris")
    run("services", "delete", "told")
    events = json.loads(run("events", "--service", "told", "--json").stdout)
    assert [(one["kind"], one["actor"]) for one in events] == [("delete", "admin"), ("create", "admin")]
