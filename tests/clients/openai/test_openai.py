"""OpenAI's own package, unmodified, and an independent reader of events, against a live gateway."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients.environments import run
from conformance.openai import models
from live import gateway

CONFIG = """
models_dir = "models"
[gateway]
device = "cpu"
[services.tinychat]
aliases = ["org/tiny:latest"]
app_auth = true
app_codes = ["opensesame"]
[services.embedder]
"""


REMOTE = 'backend = "remote"\n[remote]\nkind = "openai"\nurls = ["{url}/v1"]\napi_key = {{ file = "key" }}\n'


def _stand_before(url: str, base: Path) -> Path:
    """The configuration of a gateway whose models are those of the other one."""
    for name, more in (("tinychat", ""), ("embedder", 'offers = ["embeddings"]\n')):
        folder = base / "models" / name
        folder.mkdir(parents=True)
        (folder / "key").write_text("opensesame\n", "utf-8")
        (folder / "model.toml").write_text(REMOTE.format(url=url) + more, "utf-8")
    (base / "config.toml").write_text(CONFIG, "utf-8")
    return base / "config.toml"


@pytest.fixture(scope="module", params=["/v1", "/openai/v1", "remote"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What came of every call of openai_calls.py, with every protocol on; once with a gateway behind the gateway."""
    base = tmp_path_factory.mktemp("openai")
    models.write(base / "models")
    (base / "config.toml").write_text(CONFIG, "utf-8")
    with gateway(base / "config.toml") as live:
        live.wait_until("/readyz", 200)
        script = Path(__file__).with_name("openai_calls.py")
        if request.param == "remote":
            with gateway(_stand_before(live.url, base / "front")) as front:
                front.wait_until("/readyz", 200)
                yield run("openai", script, f"{front.url}/v1")
                front.wait_for_metric("tensorgate_requests_in_flight", 0)
        else:
            yield run("openai", script, f"{live.url}{request.param}")
        live.wait_for_metric("tensorgate_requests_in_flight", 0)


def test_chat(seen: dict[str, Any]) -> None:
    """Whole, in chunks and through the helper, the same seed says the same and counts the same tokens."""
    chat = seen["chat"]
    assert chat["hello"] == "Hello! How can I help you today?"
    assert chat["whole"] == chat["chunks"] == chat["helper"][0] != chat["helper"][1]
    counted = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [chat["usage"][name] for name in counted] == [chat["chunks_usage"][name] for name in counted]
    assert set(chat["helper_reasons"]) <= {"stop", "length"}
    assert {"chunk", "content.delta", "content.done"} <= set(chat["kinds"])
    assert chat["logprobs"] == [2, 2, 2]


def test_parse(seen: dict[str, Any]) -> None:
    """An answer by a class's schema is an object of that class."""
    assert seen["structured"]["parsed"] == seen["structured"]["streamed"]
    assert seen["structured"]["parsed"]["age"] == 42


def test_tools(seen: dict[str, Any]) -> None:
    """A call comes whole or in pieces, with an id, and its result can be told."""
    tools = seen["tools"]
    assert tools["whole"] == tools["streamed"]
    (call,) = tools["whole"]
    assert call["name"] == "get_weather"
    assert list(json.loads(call["arguments"])) == ["city"]
    assert [json.loads(one["arguments"]) for one in tools["auto"]] == [{"city": "Paris"}]
    assert len(tools["pieces"]) > 1
    assert ["".join(tools["pieces"])] == tools["done"] == [call["arguments"]]
    assert tools["reasons"] == ["tool_calls", "tool_calls", "stop"]
    assert all(re.fullmatch(r"call_\w{20,}", one) for one in tools["ids"])
    assert isinstance(tools["after"], str)


def test_completions(seen: dict[str, Any]) -> None:
    """Every prompt is answered as often as asked, in order."""
    texts = seen["texts"]
    assert texts["whole"] == [texts["pieces"][0]] * 2 + [texts["pieces"][1]] * 2
    assert all(texts["pieces"])


def test_embeddings(seen: dict[str, Any]) -> None:
    """Base64, which the package asks for by itself, holds the same numbers as JSON."""
    assert seen["vectors"] == {"sizes": [8, 8], "equal": True, "tokens": 3}


def test_models(seen: dict[str, Any]) -> None:
    """The list has the services' names and aliases; one with a slash can be asked for."""
    assert sorted(seen["models"]["ids"]) == ["embedder", "org/tiny:latest", "tinychat"]
    assert seen["models"]["one"] == {"id": "org/tiny:latest", "object": "model"}


def test_errors(seen: dict[str, Any]) -> None:
    """Each mistake raises the package's own exception, with code and parameter."""
    kind = "invalid_request_error"
    assert seen["errors"] == {
        "model": ["NotFoundError", "model_not_found", "model", kind],
        "retrieve": ["NotFoundError", "model_not_found", "model", kind],
        "value": ["BadRequestError", "invalid_value", "temperature", kind],
        "context": ["BadRequestError", "context_length_exceeded", "messages", kind],
        "stream": ["BadRequestError", "invalid_value", "n", kind],
        "key": ["AuthenticationError", "invalid_api_key", None, kind],
    }


def test_many_at_once(seen: dict[str, Any]) -> None:
    """Streams that share the batch, some of them left early, each say what the whole answer of their seed says."""
    assert seen["at_once"] == {"wrong": [], "left": 8}


def test_an_independent_reader(seen: dict[str, Any]) -> None:
    """Who knows server-sent events and nothing more reads the same text; events have no names and no ids."""
    expected = {"text": "Hello! How can I help you today?", "end": "[DONE]", "named": [["message", ""]]}
    assert seen["independent"] == expected
