"""The online test's way into a running gateway, in one process and in many: who may, what passes, and what ends it."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from admin import Admin
from live import LiveGateway, becomes, gateway
from websockets.sync.client import connect
from websockets.typing import Origin

DATA = Path(__file__).parents[1] / "data"
MODELS = Path(__file__).parents[2] / "configs" / "models"
CONFIG = """models_dir = "models"
[gateway]
data_dir = "data"
admin_port = 0
device = "cpu"
workers = {workers}
[limits]
body_bytes = 200000
[services.locked]
model = "iris"
app_auth = true
owner = "ada"
project = "lab"
sharing = "ro"
canary = {{ model = "half_plus_three", weight = 0 }}
[services.painter]
app_auth = true
canary = {{ model = "iris", weight = 0 }}
[services.notes]
type = "custom"
app_auth = true
[services.stopped]
model = "iris"
state = "stopped"
reason = "for the night"
"""
ROWS = {"instances": [[5.1, 3.5, 1.4, 0.2]]}


class Console:
    """A gateway with a control plane, and the path of its online tests."""

    def __init__(self, live: LiveGateway) -> None:
        self.live = live
        self.admin = Admin(live)

    def call(self, path: str, method: str = "POST", token: str | None = None, **options: Any) -> httpx.Response:
        """A test of a service; `path` is NAME/REST."""
        name, _, rest = path.partition("/")
        headers = {"authorization": f"Bearer {self.admin.token if token is None else token}"}
        headers |= options.pop("headers", {})
        url = f"{self.admin.url}/services/{name}/test/{rest}"
        return httpx.request(method, url, headers=headers, timeout=options.pop("timeout", 30), **options)

    def user(self, name: str, **fields: Any) -> str:
        """A new member's token."""
        self.admin("POST", "/users", {"name": name, "role": "member", **fields}, 201)
        token: str = self.admin("POST", f"/users/{name}/tokens", {"label": "t"}, 201)["text"]
        return token

    @property
    def socket_url(self) -> str:
        return f"{self.admin.url.replace('http', 'ws', 1)}/services"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.admin.token}"}

    def in_flight(self) -> float:
        """Requests that are answered now, in all processes."""
        page = httpx.get(self.admin.url.replace("/control/v1", "/metrics")).text.splitlines()
        return sum(float(line.split()[-1]) for line in page if line.startswith("tensorgate_requests_in_flight"))


@pytest.fixture(scope="module", params=[1, 2])
def tested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One gateway for all tests here, with so many processes."""
    folder = tmp_path_factory.mktemp("gateway")
    for name in ("iris", "half_plus_three", "painter"):
        shutil.copytree(MODELS / name, folder / "models" / name)
    (folder / "models" / "notes").mkdir()
    shutil.copy(DATA / "custom" / "notes.py", folder / "models" / "notes")
    (folder / "models" / "notes" / "model.toml").write_text(
        'backend = "custom"\n[custom]\ncommand = ["python", "notes.py"]\nready_path = "/ready"\n'
    )
    (folder / "gateway.toml").write_text(CONFIG.format(workers=request.param))
    with gateway(folder / "gateway.toml") as live:
        yield Console(live)


def test_no_key_is_needed(tested: Console) -> None:
    """Who has signed in calls a service that takes keys, and the log says who that was."""
    assert httpx.post(f"{tested.live.url}/services/locked/v1/models:predict", json=ROWS).status_code == 401
    reply = tested.call("locked/v1/models:predict", json=ROWS, headers={"X-Tensorgate-Timing": "1"})
    assert (
        reply.status_code, reply.headers["x-tensorgate-variant"], reply.headers["x-tensorgate-version"],
    ) == (200, "stable", "1")  # fmt: skip
    assert "total;dur=" in reply.headers["server-timing"]
    assert reply.json()["predictions"][0]["species"] == "setosa"
    tested.live.wait_for_log('"key":"test:admin"')


def test_the_canary_is_chosen(tested: Console) -> None:
    """Canary: Always and Never arrive."""
    always = tested.call("locked/v1/models:predict", json={"instances": [1.0]}, headers={"Canary": "Always"})
    assert (
        always.status_code, always.headers["x-tensorgate-variant"], always.json(),
    ) == (200, "canary", {"predictions": [3.5]})  # fmt: skip


def test_who_may(tested: Console) -> None:
    """Nobody without a token; members of the service's project as it is shared; others do not even learn of it."""
    colleague, stranger = tested.user("bob", project="lab"), tested.user("eve", project="far")
    codes = [
        tested.call("locked/v1/models:predict", json=ROWS, token=token).status_code
        for token in (colleague, stranger, "wrong", "x" * 2000)
    ]
    assert codes == [200, 404, 401, 401]
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        connect(f"{tested.socket_url}/painter/test/generate", additional_headers={"Authorization": "Bearer wrong"})
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("nobody/v1/models:predict", 404, "there is no service 'nobody'"),
        ("locked/none", 404, "no protocol has this path"),
        ("locked/v1/models:predict", 400, "instances"),
        ("stopped/v1/models:predict", 503, "for the night"),
        ("locked/../painter/v1/models:predict", 404, ""),
        ("locked/%2e%2e/painter/v1/models:predict", 404, ""),
        ("locked//services/painter/v1/models:predict", 404, ""),
    ],
)
def test_refusals(tested: Console, path: str, code: int, text: str) -> None:
    """What is wrong is told as the service's callers are told it."""
    reply = tested.call(path, json={})
    assert (code, True) == (reply.status_code, text in reply.text), reply.text


@pytest.mark.parametrize("declared", [True, False])
def test_bodies_are_bounded(tested: Console, declared: bool) -> None:
    """A body over the data port's limit is refused, and the listener lives on."""
    body = b" " * 300_000
    reply = tested.call("locked/v1/models:predict", content=body if declared else iter([body[:150_000]] * 2))
    assert (reply.status_code, "200000 bytes" in reply.text) == (413, True)
    assert tested.call("locked/v1/models:predict", json=ROWS).status_code == 200


def test_the_consoles_own_stays_here(tested: Console) -> None:
    """A service sees neither cookie nor token of who tests it, and sets none; its pages are kept from running."""
    reply = tested.call("notes/page?a=1", "GET", headers={"Cookie": "session=1", "X-CSRF-Token": "2", "Origin": "x"})
    asked = reply.json()
    names = {name for name, _ in asked["headers"]}
    assert (asked["target"], asked["query"]) == ("/page", "a=1")
    assert not names & {"cookie", "authorization", "x-csrf-token", "origin", "x-tensorgate-key"}
    assert "set-cookie" not in reply.headers
    assert "x-own" not in reply.headers
    assert (
        reply.headers["content-security-policy"], reply.headers["x-content-type-options"],
    ) == ("sandbox; default-src 'none'", "nosniff")  # fmt: skip
    assert len(reply.headers.get_list("x-request-id")) == 1


def test_streams_pass_as_they_come(tested: Console) -> None:
    """The first event is here long before the last, and leaving ends the service's work."""
    url = f"{tested.admin.url}/services/notes/test/events"
    with httpx.stream("GET", url, headers=tested.bearer, timeout=10) as reply:
        assert "data: 0" in next(reply.iter_lines())
    assert becomes(lambda: "events" in tested.call("notes/x", "GET").json()["left"], 3)


def test_leaving_ends_the_call(tested: Console) -> None:
    """Who goes away before there is an answer is not answered any more: nothing stays in flight."""
    with pytest.raises(httpx.ReadTimeout):
        tested.call("notes/slow", "GET", timeout=0.5)
    assert becomes(lambda: "slow" in tested.call("notes/x", "GET").json()["left"], 3)
    assert becomes(lambda: tested.in_flight() == 0, 3), tested.in_flight()


def test_websockets_pass(tested: Console) -> None:
    """Pictures are painted over a websocket, and an error comes as an event; closing frees the place."""
    with connect(f"{tested.socket_url}/painter/test/generate", additional_headers=tested.bearer) as socket:
        socket.send('{"prompt": "a red seven", "step": 2}')
        kinds = [socket.recv(10) for _ in range(5)]
        assert kinds[0] == '{"type":"status","message":"start"}'
        assert kinds[-1].startswith('{"type":"output"')  # type: ignore[arg-type]
        socket.send('{"prompt": 3}')
        assert "prompt: expected a text" in socket.recv(10)  # type: ignore[operator]
        socket.send('{"prompt": "a red seven", "step": 150, "width": 256, "height": 256}')
        socket.recv(10)
    assert becomes(lambda: tested.in_flight() == 0, 3)


def test_a_websockets_variant(tested: Console) -> None:
    """A page cannot give a websocket headers: it names the variant in the query, which the service does not see."""
    url = f"{tested.socket_url}/painter/test/generate?canary=Always"
    with connect(url, additional_headers=tested.bearer) as socket:
        socket.send('{"prompt": "a red seven", "step": 2}')
        assert "does not make pictures" in socket.recv(10)  # type: ignore[operator]


def test_a_console_session(tested: Console) -> None:
    """A browser that is signed in calls services by its cookie; a page of somebody else's that uses it does not."""
    site = tested.admin.url.removesuffix("/control/v1")
    with httpx.Client() as browser:
        browser.post(f"{site}/console/sign-in", data={"token": tested.admin.token})
        page = browser.get(f"{site}/console/services/locked/test").text
        found = re.search(r'name="csrf-token" content="([^"]+)"', page)
        assert found is not None
        url = f"{tested.admin.url}/services/locked/test/v1/models:predict"
        assert browser.post(url, json=ROWS).status_code == 403
        assert browser.post(url, json=ROWS, headers={"X-CSRF-Token": found[1]}).status_code == 200
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    path = f"{tested.socket_url}/painter/test/generate"
    with connect(path, additional_headers={"Cookie": cookie}, origin=Origin(site)):
        pass
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        connect(path, additional_headers={"Cookie": cookie}, origin=Origin("http://evil.example"))
    assert refused.value.response.status_code == 403


def test_the_latest_requests_of_all_processes(tested: Console) -> None:
    """Whichever process answered, the call is told of, once, and by whom it was made."""
    said = {tested.call("locked/v1/models:predict", json=ROWS).headers["x-request-id"] for _ in range(12)}
    lines = tested.admin("GET", "/requests?service=locked&status=200&limit=500")
    assert said <= {line["id"] for line in lines}
    assert len(lines) == len({line["id"] for line in lines})
    assert {"test:admin"} == {line["key"] for line in lines if line["id"] in said}
