"""Custom services on a running gateway: calls pass as they are, and nothing is left behind when a side fails."""

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from live import LiveGateway, becomes, gateway, put_echo
from websockets.sync.client import ClientConnection, connect

SERVER = Path(__file__).parents[1] / "data" / "custom" / "notes.py"
SETTINGS = """backend = "custom"
[custom]
command = ["python", "notes.py"]
ready_path = "/ready"
idle_seconds = 3
parameters = { level = 3, loud = true }
environment = { COLOUR = "green" }
"""
CONFIG = """models_dir = "models"
[gateway]
hosts = "{service}.example.com"
[limits]
body_bytes = 3000000
[services.notes]
type = "custom"
[services.locked]
type = "custom"
model = "notes"
app_auth = true
app_codes = ["open-sesame"]
[services.rated]
type = "custom"
model = "notes"
limits = { requests_per_second = 1 }
[services.closed]
type = "custom"
model = "notes"
state = "stopped"
reason = "for the night"
[services.tried]
type = "custom"
model = "notes"
[services.tried.canary]
model = "notes-new"
weight = 25
[services.single]
type = "custom"
model = "notes"
limits = { concurrency = 1, queue = 0 }
[services.wrong]
type = "custom"
model = "echo"
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway in front of the user's server."""
    folder = tmp_path_factory.mktemp("custom")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATEWAY_SECRET", "nobody's business")
        with gateway(put(folder)) as live:
            yield live


def put(folder: Path, settings: str = SETTINGS) -> Path:
    """The configuration, beside its models."""
    version = folder / "models" / "notes" / "1"
    version.mkdir(parents=True)
    shutil.copy(SERVER, version)
    (version.parent / "model.toml").write_text(settings)
    shutil.copytree(folder / "models" / "notes", folder / "models" / "notes-new")
    newer = folder / "models" / "notes-new" / "model.toml"
    newer.write_text(newer.read_text().replace('COLOUR = "green"', 'COLOUR = "red"'))
    put_echo(folder / "models", "echo")
    (folder / "gateway.toml").write_text(CONFIG)
    return folder / "gateway.toml"


def told(live: LiveGateway) -> dict[str, Any]:
    """What the server says of itself."""
    page: dict[str, Any] = httpx.get(f"{live.url}/services/notes/").json()
    return page


def headers_of(page: dict[str, Any]) -> dict[str, str]:
    return dict(page["headers"])


# Services that are stopped, or have a canary...


def test_a_stopped_service_says_so(live: LiveGateway) -> None:
    """In the gateway's own words, and its server is asked nothing."""
    reply = httpx.get(f"{live.url}/services/closed/")
    assert (reply.status_code, reply.json()) == (503, {"error": "the service closed is stopped: for the night"})


def test_a_server_may_have_a_canary(live: LiveGateway) -> None:
    """Its share is exact, the header wins and is not passed on, and the answer says who gave it."""
    seen = [httpx.get(f"{live.url}/services/tried/") for _ in range(8)]
    told_of = [(reply.headers["x-tensorgate-variant"], reply.json()["colour"]) for reply in seen]
    assert told_of == ([("stable", "green")] * 3 + [("canary", "red")]) * 2
    always = httpx.get(f"{live.url}/services/tried/", headers={"Canary": "Always"})
    assert always.json()["colour"] == "red"
    assert "canary" not in headers_of(always.json())
    wrong = httpx.get(f"{live.url}/services/tried/", headers={"Canary": "Often"})
    assert (wrong.status_code, wrong.json()) == (
        400,
        {"error": "the header Canary must be Always or Never, got 'Often'"},
    )


# What passes through...


def test_call_arrives_as_it_was_sent(live: LiveGateway) -> None:
    """Method, path with its escapes, query, headers and body are the client's own."""
    reply = httpx.request(
        "PATCH",
        f"{live.url}/services/notes/a%2Fb/%7Ec?x=1&x=%20",
        content=b"body",
        headers={"Cookie": "a=b", "Authorization": "Bearer own", "Connection": "x-private", "X-Private": "1"},
    )
    page = reply.json()
    got = headers_of(page)
    assert (
        page["method"], page["target"], page["query"], page["size"],
    ) == ("PATCH", "/a%2Fb/%7Ec", "x=1&x=%20", 4)  # fmt: skip
    assert (got["cookie"], got["authorization"]) == ("a=b", "Bearer own")
    assert "x-private" not in got
    assert (got["x-forwarded-for"], got["x-forwarded-prefix"]) == ("127.0.0.1", "/services/notes")
    assert live.url.removeprefix("http://") == got["host"]


def test_answer_comes_back_as_it_was_given(live: LiveGateway) -> None:
    """Status and headers are the server's, two cookies among them, with one date and the request's id."""
    reply = httpx.get(f"{live.url}/services/notes/x", headers={"X-Request-Id": "mine-1"})
    assert (reply.status_code, reply.headers["x-own"], reply.headers["x-request-id"]) == (207, "kept", "mine-1")
    assert len(reply.headers.get_list("set-cookie")) == 2
    assert len(reply.headers.get_list("date")) == 1


def test_cookies_of_one_client_are_not_sent_for_another(live: LiveGateway) -> None:
    """What the server sets on one caller is no other caller's."""
    httpx.get(f"{live.url}/services/notes/")
    assert "cookie" not in headers_of(told(live))


def test_host_names_the_service(live: LiveGateway) -> None:
    """Under the service's own host every path is its server's, the gateway's pages among them."""
    reply = httpx.get(f"{live.url}/v1/models", headers={"Host": "notes.example.com"})
    assert (reply.json()["target"], headers_of(reply.json())["host"]) == ("/v1/models", "notes.example.com")
    assert "x-forwarded-prefix" not in headers_of(reply.json())


def test_prefix_alone_is_the_root(live: LiveGateway) -> None:
    """Without a slash behind the name, the server's root is meant."""
    assert httpx.get(f"{live.url}/services/notes").json()["target"] == "/"


def test_head_has_no_body(live: LiveGateway) -> None:
    """HEAD tells the length, and sends nothing."""
    reply = httpx.head(f"{live.url}/services/notes/x")
    assert reply.status_code == 207
    assert int(reply.headers["content-length"]) > 0
    assert reply.content == b""


def test_chunked_body_passes(live: LiveGateway) -> None:
    """A body of unknown length arrives whole."""

    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 50_000

    assert httpx.post(f"{live.url}/services/notes/", content=chunks()).json()["size"] == 1_000_000


def test_process_gets_its_settings_and_no_secrets(live: LiveGateway) -> None:
    """Parameters are arguments, the table's variables are set, and the gateway's own environment stays with it."""
    page = told(live)
    assert (page["arguments"], page["colour"], page["secret"]) == (["--level=3", "--loud=true"], "green", "")


def test_events_come_one_by_one_and_end_with_the_client(live: LiveGateway) -> None:
    """Server-sent events are not gathered, and a client that leaves ends them."""
    before = told(live)["left"].count("events")
    with httpx.stream("GET", f"{live.url}/services/notes/events") as reply:
        lines = reply.iter_lines()
        assert [next(lines) for _ in range(3)] == ["data: 0", "", "data: 1"]
    assert becomes(lambda: told(live)["left"].count("events") == before + 1, 5.0)
    live.wait_for_metric("tensorgate_requests_in_flight", 0)


def test_client_that_leaves_before_the_answer_ends_the_call(live: LiveGateway) -> None:
    """The server learns that nobody waits any more."""
    before = told(live)["left"].count("slow")
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{live.url}/services/notes/slow", timeout=0.5)
    assert becomes(lambda: told(live)["left"].count("slow") == before + 1, 5.0)


# Keys and refusals...


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "APPCODE wrong"}, 401),
        ({"Authorization": "APPCODE open-sesame"}, 207),
        ({"X-Tensorgate-Key": "open-sesame", "Authorization": "Bearer own"}, 207),
    ],
)
def test_keys_are_the_gateways_affair(live: LiveGateway, headers: dict[str, str], status: int) -> None:
    """A protected service asks for its key, and its server never sees it."""
    reply = httpx.get(f"{live.url}/services/locked/", headers=headers)
    assert status == reply.status_code
    assert "sesame" not in reply.text
    if status == 207 and "X-Tensorgate-Key" in headers:
        assert headers_of(reply.json())["authorization"] == "Bearer own"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/services/wrong/x", 503, "its model is no server"),
        ("/services/notes/slow", 504, "has not answered in time"),
    ],
)
def test_refusals_are_plain_json(live: LiveGateway, path: str, status: int, text: str) -> None:
    """What the gateway itself answers is one JSON object that says why."""
    reply = httpx.get(f"{live.url}{path}", timeout=20)
    assert status == reply.status_code
    assert text in reply.json()["error"]


def test_bodies_keep_to_the_limit(live: LiveGateway) -> None:
    """A body over the limit is refused, whether or not its length was told before."""

    def chunks() -> Iterator[bytes]:
        for _ in range(70):
            yield b"x" * 50_000

    assert httpx.post(f"{live.url}/services/notes/", content=b"x" * 3_000_001).status_code == 413
    with contextlib.suppress(httpx.WriteError):
        assert httpx.post(f"{live.url}/services/notes/", content=chunks()).status_code == 413
    assert told(live)["size"] == 0


# Websockets...


def talking(live: LiveGateway, path: str = "/services/notes/talk", **options: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{live.port}{path}", proxy=None, **options)


def test_websocket_messages_pass_both_ways(live: LiveGateway) -> None:
    """Text stays text, bytes stay bytes, and the server chooses the subprotocol."""
    with talking(live, subprotocols=["one", "two"]) as talk:
        assert talk.subprotocol == "two"
        talk.send("hello")
        assert talk.recv() == "/services/notes hello"
        talk.send(bytes(range(256)) * 1000)
        assert talk.recv() == bytes(range(256)) * 1000


def test_websocket_ends_as_the_server_ends_it(live: LiveGateway) -> None:
    """Code and reason are the server's own."""
    with talking(live) as talk:
        talk.send("bye")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            talk.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "so long")


def test_server_hears_how_the_client_ends_it(live: LiveGateway) -> None:
    """The client's code reaches the server."""
    with talking(live) as talk:
        talk.close(4002)
    assert becomes(lambda: "talk 4002" in told(live)["left"], 5.0)


def test_websocket_that_the_server_refuses(live: LiveGateway) -> None:
    """The refusal is the server's own answer."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        talking(live, subprotocols=["refused"])
    assert (refused.value.response.status_code, bytes(refused.value.response.body or b"")) == (418, b"not you")


def test_websocket_without_a_key(live: LiveGateway) -> None:
    """A protected service's websocket is not opened for nobody."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        talking(live, "/services/locked/talk")
    assert refused.value.response.status_code == 401
    assert "uvicorn.error: " not in live.errors()


def test_offer_elsewhere_is_answered_as_http(live: LiveGateway) -> None:
    """Where no websocket is spoken, the call is answered as if it had not asked for one."""
    with socket.create_connection(("127.0.0.1", live.port)) as client:
        client.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        client.settimeout(5)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")


# The process...


def test_server_that_ends_is_started_again(live: LiveGateway) -> None:
    """An answer that breaks off is broken for the client too; the next server takes the calls that follow."""
    before = told(live)["pid"]
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{live.url}/services/notes/breaks")

    def another() -> bool:
        reply = httpx.get(f"{live.url}/services/notes/")
        assert reply.status_code in (207, 502, 503)
        return reply.status_code == 207 and reply.json()["pid"] != before

    assert becomes(another, 15.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_server_ends_with_the_gateway(tmp_path: Path, number: signal.Signals) -> None:
    """However the gateway ends, no process of a user's is left."""
    with gateway(put(tmp_path)) as live:
        pid = told(live)["pid"]
        live.stop(number)
        assert becomes(lambda: not Path(f"/proc/{pid}").exists() or _is_dead(pid), 5.0)


def _is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_limits_hold_for_custom_services(live: LiveGateway) -> None:
    """A rate is told with 429 and Retry-After, whatever the server would have answered."""
    first, second = (httpx.get(f"{live.url}/services/rated/") for _ in range(2))
    assert (first.status_code, second.status_code) == (207, 429)
    assert "1 requests a second" in second.json()["error"]
    assert second.headers["retry-after"] == "1"


def test_an_open_websocket_keeps_its_place(live: LiveGateway) -> None:
    """Who comes while the only place is taken is told at once; when it is free, it is served."""
    with talking(live, "/services/single/talk") as talk:
        talk.send("here")
        assert talk.recv(timeout=10)
        refused = httpx.get(f"{live.url}/services/single/")
        assert refused.status_code == 503
        assert "no room for more requests" in refused.json()["error"]
    live.wait_for_metric("tensorgate_requests_running", 0, service="single")
    assert httpx.get(f"{live.url}/services/single/").status_code == 207
