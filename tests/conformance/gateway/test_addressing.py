"""Which service a call means: path, prefix, host, header, default."""

import httpx
import pytest
from live import LiveGateway

BODY = {"inputs": {"a": [1], "b": [2]}}
NAMELESS = "/v1/models:predict"


def answered_by(reply: httpx.Response) -> str:
    """The model that answered, told by its outputs' names."""
    assert reply.status_code == 200, reply.text
    return {"_1": "one", "_2": "two", "_3": "three"}[next(iter(reply.json()["outputs"]))[1:]]


@pytest.mark.parametrize(
    ("path", "headers", "model"),
    [
        ("/v1/models/alpha:predict", {}, "one"),
        ("/v1/models/first:predict", {}, "one"),
        ("/v1/models/org%2Falpha%3Alatest:predict", {}, "one"),
        ("/v1/models/three:predict", {}, "three"),
        ("/services/three/v1/models:predict", {}, "three"),
        ("/services/three/v1/models/three:predict", {}, "three"),
        ("/services/alpha/v1/models/one:predict", {}, "one"),
        ("/services/alpha/v1/models/alpha/versions/1:predict", {}, "one"),
        ("/seldon/production/three/v1/models:predict", {}, "three"),
        (NAMELESS, {"Host": "three.example.com"}, "three"),
        (NAMELESS, {"Host": "THREE.example.com:8080"}, "three"),
        (NAMELESS, {"X-Tensorgate-Service": "three"}, "three"),
        (NAMELESS, {}, "one"),
        (NAMELESS, {"Host": "alpha.example.com", "X-Tensorgate-Service": "three"}, "one"),
        ("/services/three/v1/models:predict", {"Host": "alpha.example.com"}, "three"),
        ("/v1/models/three:predict", {"Host": "alpha.example.com"}, "three"),
        (NAMELESS, {"Host": "elsewhere.org"}, "one"),
    ],
)
def test_a_call_reaches_the_service_it_names(live: LiveGateway, path: str, headers: dict[str, str], model: str) -> None:
    """A name in the path, else prefix, host, header and default, in this order."""
    assert answered_by(httpx.post(live.url + path, json=BODY, headers=headers)) == model


@pytest.mark.parametrize(
    ("path", "headers", "text"),
    [
        ("/v1/models/one:predict", {}, "Latest(one)"),
        ("/v1/models/nothing:predict", {}, "Latest(nothing)"),
        ("/services/nothing/v1/models:predict", {}, "nothing"),
        ("/services/alpha/v1/models/three:predict", {}, "three"),
        (NAMELESS, {"Host": "nothing.example.com"}, "nothing"),
        (NAMELESS, {"X-Tensorgate-Service": "nothing"}, "nothing"),
        ("/services/talker/v1/models:predict", {}, "talker"),
        ("/v1/models/talker:predict", {}, "talker"),
    ],
)
def test_a_service_that_is_not_there_is_404(live: LiveGateway, path: str, headers: dict[str, str], text: str) -> None:
    """A model that a service names has no name of its own, and a service of another protocol is not reached."""
    reply = httpx.post(live.url + path, json=BODY, headers=headers)
    assert reply.status_code == 404, reply.text
    assert text in reply.json()["error"]


def test_status_and_metadata_speak_of_the_name_that_was_asked(live: LiveGateway) -> None:
    """The client sees the service's name, whatever the model behind it is called."""
    spec = httpx.get(f"{live.url}/v1/models/first/metadata").json()["model_spec"]
    assert spec == {"name": "first", "signature_name": "", "version": "1"}
    assert httpx.get(f"{live.url}/v1/models/first").json()["model_version_status"][0]["state"] == "AVAILABLE"


def test_an_unknown_path_is_answered_in_json(live: LiveGateway) -> None:
    """Outside every protocol's paths too."""
    reply = httpx.get(f"{live.url}/nothing/here")
    assert reply.status_code == 404
    assert "error" in reply.json()
