"""TF Serving and OpenAI below one `/v1`, with every protocol on: who answers what, and in whose form errors are."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import LiveGateway, gateway, put_echo

DEMO = Path(__file__).resolve().parents[3] / "configs" / "models"

CONFIG = """
models_dir = "models"
[gateway]
device = "cpu"
[services.chatter]
model = "tinychat"
aliases = ["org/tiny:latest"]
[services.locked]
model = "tinychat"
app_auth = true
app_codes = ["opensesame"]
[services.tensors]
model = "numbers"
type = "tfserving"
"""

PLAIN: dict[str, str] = {}
BEARER = {"Authorization": "Bearer any"}
STAINLESS = {"X-Stainless-Lang": "python"}
MESSAGES = [{"role": "user", "content": "Hello!"}]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A language model under a name, an alias and a key, and one that is none."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copytree(DEMO / "tinychat", folder / "models" / "tinychat")
    put_echo(folder / "models", "numbers")
    put_echo(folder / "models", "other")
    (folder / "gateway.toml").write_text(CONFIG, "utf-8")
    with gateway(folder / "gateway.toml") as running:
        running.wait_until("/readyz", 200)
        yield running


def _form(reply: httpx.Response) -> str:
    """Whose error it is."""
    error = reply.json()["error"]
    return "tfserving" if isinstance(error, str) else "openai" if "param" in error else "?"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "form"),
    [
        ("GET", "/v1/models/nope", PLAIN, 404, "tfserving"),
        ("GET", "/v1/models/nope", BEARER, 404, "openai"),
        ("GET", "/v1/models/nope", STAINLESS, 404, "openai"),
        ("GET", "/v1/models/org/nope", PLAIN, 404, "tfserving"),
        ("GET", "/v1/models/org/nope", BEARER, 404, "openai"),
        ("GET", "/v1/models/locked", STAINLESS, 401, "openai"),
        ("GET", "/v1/models/locked", PLAIN, 401, "tfserving"),
        ("GET", "/v1/models/nope/metadata", BEARER, 404, "tfserving"),
        ("GET", "/v1/models/nope/versions/1", BEARER, 404, "tfserving"),
        ("POST", "/v1/models/nope:predict", BEARER, 404, "tfserving"),
        ("POST", "/v1/models/nope:predikt", BEARER, 400, "tfserving"),
        ("GET", "/v1/nothing", PLAIN, 400, "tfserving"),
        ("GET", "/v1/nothing", BEARER, 404, "openai"),
        ("POST", "/v1/responses", STAINLESS, 404, "openai"),
        ("POST", "/v1/models", PLAIN, 400, "tfserving"),
        ("POST", "/v1/models", BEARER, 405, "openai"),
        ("GET", "/v1/chat/completions", PLAIN, 405, "openai"),
        ("GET", "/openai/v1/nothing", PLAIN, 404, "openai"),
        ("GET", "/openai/v1/models/nope", PLAIN, 404, "openai"),
        ("GET", "/openai/v1/models/numbers", PLAIN, 404, "openai"),
        ("GET", "/services/chatter/v1/models/nope", STAINLESS, 404, "openai"),
    ],
)
def test_errors_below_v1(
    live: LiveGateway, method: str, path: str, headers: dict[str, str], status: int, form: str
) -> None:
    """OpenAI's form is for its own paths, and for callers with its headers; TF Serving's for all others."""
    reply = httpx.request(method, live.url + path, headers=headers, content=b"{}" if method == "POST" else None)
    assert (reply.status_code, _form(reply)) == (status, form), reply.text


def test_the_list_is_openais(live: LiveGateway) -> None:
    """With the models that write text, under their names and aliases, and those that the key opens."""

    def ids(path: str, **headers: str) -> list[str]:
        return [one["id"] for one in httpx.get(live.url + path, headers=headers).json()["data"]]

    assert ids("/v1/models") == ids("/openai/v1/models") == ["chatter", "org/tiny:latest"]
    assert ids("/v1/models", Authorization="Bearer opensesame") == ["chatter", "org/tiny:latest", "locked"]
    assert ids("/services/chatter/v1/models") == ["chatter", "org/tiny:latest"]


def test_one_model_is_told_to_both(live: LiveGateway) -> None:
    """A language model's status has OpenAI's members, too; another's has not."""
    told = httpx.get(f"{live.url}/v1/models/chatter").json()
    assert told["model_version_status"][0]["state"] == "AVAILABLE"
    (listed, _) = httpx.get(f"{live.url}/v1/models").json()["data"]
    assert {name: told[name] for name in listed} == listed
    assert list(httpx.get(f"{live.url}/v1/models/tensors").json()) == ["model_version_status"]


@pytest.mark.parametrize("path", ["/v1/models/org/tiny:latest", "/v1/models/org%2Ftiny%3Alatest"])
def test_an_id_may_be_a_path(live: LiveGateway, path: str) -> None:
    """With a slash and a colon in it, encoded or not."""
    told = httpx.get(live.url + path).json()
    assert (told["id"], told["object"], told["owned_by"]) == ("org/tiny:latest", "model", "tensorgate")


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/v1/chat/completions", {}, {"model": "chatter"}, 200),
        ("/v1/chat/completions", {}, {"model": "org/tiny:latest"}, 200),
        ("/openai/v1/chat/completions", {}, {"model": "chatter"}, 200),
        ("/services/chatter/v1/chat/completions", {}, {}, 200),
        ("/services/chatter/openai/v1/chat/completions", {}, {"model": "tinychat"}, 200),
        ("/services/chatter/v1/chat/completions", {}, {"model": "other"}, 404),
        ("/v1/chat/completions", {"X-Tensorgate-Service": "chatter"}, {}, 200),
        ("/v1/chat/completions", {}, {}, 400),
        ("/v1/chat/completions", {}, {"model": "other"}, 404),
        ("/v1/chat/completions", {}, {"model": "tensors"}, 404),
        ("/v1/chat/completions", {}, {"model": "locked"}, 401),
        ("/v1/chat/completions", {"Authorization": "Bearer opensesame"}, {"model": "locked"}, 200),
        ("/v1/chat/completions", {"Authorization": "APPCODE opensesame"}, {"model": "locked"}, 200),
    ],
)
def test_who_is_meant(live: LiveGateway, path: str, headers: dict[str, str], body: dict[str, Any], status: int) -> None:
    """The body names the model; prefix and header do where it does not, and nobody is guessed."""
    reply = httpx.post(live.url + path, json=body | {"messages": MESSAGES, "max_tokens": 4}, headers=headers)
    assert reply.status_code == status, reply.text
    if status == 200:
        assert reply.json()["model"] == body.get("model", "tinychat")
    else:
        assert reply.json()["error"]["param"] == (None if status == 401 else "model")


def test_every_protocol_reaches_the_model(live: LiveGateway) -> None:
    """The same words by TF Serving, Seldon, SageMaker, v2 and OpenAI."""
    prompt = "Once upon a"

    def post(path: str, body: Any) -> Any:
        reply = httpx.post(live.url + path, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert reply.status_code == 200, reply.text
        return reply.json()

    limits = {"max_tokens": 8, "temperature": 0}
    text = post("/v1/completions", {"model": "chatter", "prompt": prompt, **limits})["choices"][0]["text"]
    v2 = post("/v2/models/chatter/generate", {"text_input": prompt, "parameters": limits})
    assert v2["text_output"] == text
    (whole,) = post("/v1/models/chatter:predict", {"instances": [{"prompt": prompt}]})["predictions"]
    assert whole.startswith(text)
    assert post("/seldon/x/chatter/api/v1.0/predictions", {"strData": prompt})["strData"] == whole
