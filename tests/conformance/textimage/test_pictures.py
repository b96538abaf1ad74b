"""Text to image on a running gateway: the websocket's events, what ends a drawing, and the other ways to a picture."""

import base64
import contextlib
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import websockets
from live import LiveGateway, becomes, gateway
from PIL import Image
from websockets.sync.client import ClientConnection, connect

MODELS = Path(__file__).resolve().parents[3] / "configs" / "models"
CONFIG = f"""
default_service = "echo"
[models]
painter = "{MODELS / "painter"}"
echo = "{MODELS / "echo"}"
[services.locked]
model = "painter"
app_auth = true
app_codes = ["open-sesame"]
[services.painter]
[services.typed]
model = "painter"
type = "tfserving"
[services.echo]
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with one model that draws, behind several services."""
    config = tmp_path_factory.mktemp("pictures") / "gateway.toml"
    config.write_text(CONFIG)
    with gateway(config, "--device", "cpu") as live:
        yield live


def talking(live: LiveGateway, path: str = "/services/painter/generate", **options: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{live.port}{path}", proxy=None, **options)


def events(talk: ClientConnection, **asked: Any) -> list[dict[str, str]]:
    """All that is answered to one request."""
    talk.send(json.dumps(asked))
    got: list[dict[str, str]] = []
    while not got or got[-1]["type"] not in ("output", "error"):
        got.append(json.loads(talk.recv(timeout=20)))
    return got


def size_of(encoded: str) -> tuple[str | None, tuple[int, int]]:
    picture = Image.open(io.BytesIO(base64.b64decode(encoded)))
    return picture.format, picture.size


def test_events_are_the_manuals(live: LiveGateway) -> None:
    """Start, progress from 0.0 upward, then a PNG of the size that was asked for."""
    with talking(live) as talk:
        got = events(talk, prompt="a red seven", negativePrompt="", cfg=7.5, step=4, width=56, height=40)
    assert got[0] == {"type": "status", "message": "start"}
    assert [one["message"] for one in got[1:-1]] == ["0.0", "0.25", "0.5", "0.75", "1.0"]
    assert {"progress"} == {one["type"] for one in got[1:-1]}
    assert size_of(got[-1]["message"]) == ("PNG", (56, 40))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"prompt": 3}', "prompt: expected a text, got int"),
        ("{}", "prompt: expected a text, got nothing"),
        ('["a"]', "expected an object such as"),
        ("{", "JSON"),
        ('{"prompt": "a", "step": 0}', "step: expected a whole number from 1 to 150, got 0"),
        ('{"prompt": "a", "cfg": "high"}', "cfg: expected a number from 0 to 100, got 'high'"),
        ('{"prompt": "a", "width": 1e9}', "width: expected a whole number from 8 to 1024"),
        (b"\xff\xfe", "JSON"),
    ],
)
def test_bad_requests_are_told_and_the_next_is_answered(live: LiveGateway, text: str | bytes, reason: str) -> None:
    """An error names the field, and the websocket lives on."""
    with talking(live) as talk:
        talk.send(text)
        answer = json.loads(talk.recv(timeout=10))
        assert answer["type"] == "error"
        assert reason in answer["message"]
        assert events(talk, prompt="one", step=1)[-1]["type"] == "output"


def test_several_pictures_come_one_by_one(live: LiveGateway) -> None:
    """`n` pictures are as many outputs, all different."""
    with talking(live) as talk:
        talk.send(json.dumps({"prompt": "one", "step": 1, "n": 3}))
        outputs: set[str] = set()
        while len(outputs) < 3:
            event = json.loads(talk.recv(timeout=10))
            assert event["type"] != "error"
            outputs |= {event["message"]} if event["type"] == "output" else set()


def test_closing_ends_the_drawing(live: LiveGateway) -> None:
    """Nothing goes on for a client that has left, however it left."""
    for orderly in (True, False):
        with talking(live) as talk, contextlib.suppress(websockets.ConnectionClosed):
            talk.send(json.dumps({"prompt": "one", "step": 150, "width": 512, "height": 512}))
            assert json.loads(talk.recv(timeout=10))["message"] == "start"
            if not orderly:
                talk.socket.shutdown(socket.SHUT_RDWR)
        live.wait_for_metric("tensorgate_requests_in_flight", 0, seconds=3.0)
    assert httpx.get(f"{live.url}/healthz").status_code == 200


def test_long_drawings_do_not_hold_up_short_ones(live: LiveGateway) -> None:
    """Requests take turns: a few steps are done while a hundred are under way."""
    with talking(live) as long, talking(live) as short:
        long.send(json.dumps({"prompt": "one", "step": 150, "width": 256, "height": 256}))
        assert json.loads(long.recv(timeout=10))["message"] == "start"
        assert events(short, prompt="two", step=2)[-1]["type"] == "output"
        seen = [json.loads(long.recv(timeout=10))["message"]]
        with contextlib.suppress(TimeoutError):
            while True:
                seen.append(json.loads(long.recv(timeout=0))["message"])
        assert float(seen[-1]) < 1.0


def test_too_many_waiting_requests_are_cut_off(live: LiveGateway) -> None:
    """A client that sends without end is closed with a reason."""
    with talking(live) as talk:
        with contextlib.suppress(websockets.ConnectionClosed):
            for _ in range(40):
                talk.send(json.dumps({"prompt": "one", "step": 150, "width": 512, "height": 512}))
        with pytest.raises(websockets.ConnectionClosed) as closed:
            list(iter(lambda: talk.recv(timeout=10), None))
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert closed.value.rcvd.reason.startswith("more than 16 calls wait")
    live.wait_for_metric("tensorgate_requests_in_flight", 0, seconds=5.0)


# Who may, and where...


def test_path_without_a_name_is_the_one_that_draws(tmp_path: Path) -> None:
    """The default service cannot draw, so the only one that can is meant."""
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'default_service = "echo"\n[models]\npainter = "{MODELS / "painter"}"\necho = "{MODELS / "echo"}"\n'
    )
    with gateway(config, "--device", "cpu") as live, talking(live, "/generate") as talk:
        assert events(talk, prompt="one", step=1)[-1]["type"] == "output"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/services/locked/generate", {}, 401),
        ("/services/locked/generate", {"Authorization": "APPCODE wrong"}, 401),
        ("/nothing/generate", {}, 404),
    ],
)
def test_websockets_that_are_not_opened(live: LiveGateway, path: str, headers: dict[str, str], status: int) -> None:
    """The refusal is an HTTP answer, before anything is spoken."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        talking(live, path, additional_headers=headers)
    assert status == refused.value.response.status_code


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/services/nobody/generate", "there is no service 'nobody'"),
        ("/services/typed/generate", "answers tfserving calls only"),
        ("/services/echo/generate", "this model does not make pictures"),
        ("/generate", "the path names no service and there is not just one"),
    ],
)
def test_services_that_do_not_draw(live: LiveGateway, path: str, reason: str) -> None:
    """What is wrong with the service is told as an event."""
    with talking(live, path) as talk:
        answer = events(talk, prompt="one")[-1]
    assert answer["type"] == "error"
    assert reason in answer["message"]


def test_keys_open_their_service(live: LiveGateway) -> None:
    """The opening request's key holds for every request, and each has its own line in the log."""
    with talking(
        live, "/services/locked/generate", additional_headers={"Authorization": "APPCODE open-sesame"}
    ) as talk:
        assert events(talk, prompt="one", step=1)[-1]["type"] == "output"
        # NOTE: a client that closes as soon as it has its picture may be logged as gone.
        live.wait_for_log('"method":"WEBSOCKET","path":"/services/locked/generate","status":200')


# The other ways...


@pytest.mark.parametrize(("form", "key"), [("b64_json", "b64_json"), ("url", "url")])
def test_openais_pictures(live: LiveGateway, form: str, key: str) -> None:
    """As many as asked for, of that size; a URL holds the picture itself."""
    body = {"model": "painter", "prompt": "a red seven", "n": 2, "size": "48x32", "response_format": form, "steps": 2}
    reply = httpx.post(f"{live.url}/v1/images/generations", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["size"] == "48x32"
    for one in reply.json()["data"]:
        assert size_of(one[key].rpartition(",")[2]) == ("PNG", (48, 32))


@pytest.mark.parametrize(
    ("change", "param", "status"),
    [
        ({"prompt": ""}, "prompt", 400),
        ({"prompt": None}, "prompt", 400),
        ({"size": "large"}, "size", 400),
        ({"size": "9999x9999"}, "size", 400),
        ({"n": 11}, "n", 400),
        ({"steps": 9999}, "steps", 400),
        ({"stream": True}, "stream", 400),
        ({"model": "echo"}, "model", 404),
    ],
)
def test_openais_refusals_name_the_field(live: LiveGateway, change: dict[str, Any], param: str, status: int) -> None:
    """Bad fields are 400 in OpenAI's form, with `param`."""
    body = {"model": "painter", "prompt": "a", "steps": 1} | change
    reply = httpx.post(f"{live.url}/v1/images/generations", json=body)
    assert (status, param) == (reply.status_code, reply.json()["error"]["param"]), reply.text


def test_pictures_are_tensors_too(live: LiveGateway) -> None:
    """One prompt by TF Serving, Seldon, SageMaker and v2; parameters where there is a place for them."""
    tfs = httpx.post(f"{live.url}/v1/models/painter:predict", json={"instances": ["nine", "two"]}).json()
    assert np.shape(tfs["predictions"]) == (2, 32, 32, 3)
    seldon = httpx.post(f"{live.url}/services/painter/api/v1.0/predictions", json={"strData": "nine"}).json()
    assert seldon["data"]["tensor"]["shape"] == [1, 32, 32, 3]
    parameters = {"width": 16, "steps": 1}
    tensor = {"name": "prompt", "shape": [1], "datatype": "BYTES", "data": ["nine"]}
    v2 = httpx.post(f"{live.url}/v2/models/painter/infer", json={"inputs": [tensor], "parameters": parameters}).json()
    assert v2["outputs"][0]["shape"] == [1, 32, 16, 3]
    body = {"inputs": "nine", "parameters": parameters}
    sagemaker = httpx.post(f"{live.url}/endpoints/painter/invocations", json=body).json()
    assert np.shape(sagemaker["predictions"][0]["image"]) == (32, 16, 3)


def test_nothing_is_left(live: LiveGateway) -> None:
    """After all of that nobody is served any more."""
    assert becomes(lambda: live.metric("tensorgate_requests_in_flight") == 0, 5.0)
