"""The demo's language model through every protocol that carries tensors, over HTTP."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import LiveGateway

MODELS = Path(__file__).resolve().parents[3] / "configs" / "models"
PROMPT, PARAMETERS = "Once upon a time", {"max_tokens": 4}
ANSWER = ", Finn found a"
HELLO = json.dumps([{"role": "user", "content": "Hello!"}])
GREETING = "Hello! How can I help you today?"


@pytest.fixture(scope="module")
def tinychat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that serves nothing else."""
    config = tmp_path_factory.mktemp("one") / "one.toml"
    config.write_text(f'[models]\ntinychat = "{MODELS / "tinychat"}"\n')
    live = LiveGateway(str(config))
    yield live
    live.stop()


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        (
            "/v1/models/tinychat:predict",
            {"instances": [{"prompt": PROMPT}], "parameters": PARAMETERS},
            {"predictions": [ANSWER]},
        ),
        (
            "/v1/models/tinychat:predict",
            {"signature_name": "chat", "instances": [HELLO, HELLO]},
            {"predictions": [GREETING, GREETING]},
        ),
        (
            "/v1/models/tinychat:predict",
            {"inputs": {"prompt": [PROMPT]}, "parameters": PARAMETERS},
            {"outputs": [ANSWER]},
        ),
        (
            "/endpoints/tinychat/invocations",
            {"inputs": PROMPT, "parameters": {"max_new_tokens": 4}},
            {"predictions": [{"text": ANSWER}]},
        ),
        (
            "/v2/models/tinychat/generate",
            {"text_input": PROMPT, "parameters": PARAMETERS},
            {"model_name": "tinychat", "model_version": "1", "text_output": ANSWER},
        ),
        (
            "/v2/models/tinychat/infer",
            {
                "inputs": [{"name": "prompt", "datatype": "BYTES", "shape": [1], "data": [PROMPT]}],
                "parameters": PARAMETERS,
            },
            {
                "model_name": "tinychat",
                "model_version": "1",
                "outputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [ANSWER]}],
            },
        ),
    ],
)
def test_answer_by_each_protocol(tinychat: LiveGateway, path: str, body: Any, answer: Any) -> None:
    """A prompt and its parameters get through, and the text comes back in the protocol's own form."""
    reply = httpx.post(tinychat.url + path, json=body, timeout=30)
    assert (200, answer) == (reply.status_code, reply.json())


SELDON = "/services/tinychat/api/v1.0/predictions"
TOLD = {"tags": {"parameters": PARAMETERS}}


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"strData": PROMPT, "meta": TOLD}, {"strData": ANSWER, "meta": TOLD}),
        (
            {"data": {"ndarray": [PROMPT, PROMPT]}, "meta": TOLD},
            {"data": {"names": [], "ndarray": [ANSWER, ANSWER]}, "meta": TOLD},
        ),
        ({"jsonData": {"prompt": [PROMPT], "parameters": PARAMETERS}}, [ANSWER]),
        ({"jsonData": {"inputs": PROMPT, "parameters": PARAMETERS}, "meta": {"tags": {"parameters": {"n": 0}}}}, None),
        ({"jsonData": {"inputs": PROMPT, "parameters": PARAMETERS}}, [ANSWER]),
        ({"jsonData": {"messages": json.loads(HELLO)}}, [GREETING]),
        ({"jsonData": {"messages": [HELLO, HELLO]}}, [GREETING, GREETING]),
    ],
)
def test_seldon_tells_how_to_answer(tinychat: LiveGateway, body: Any, answer: Any) -> None:
    """Parameters lie in `jsonData` or in the tags, a conversation in `jsonData.messages`."""
    reply = httpx.post(tinychat.url + SELDON, json=body, timeout=30)
    if isinstance(answer, list):
        assert answer == reply.json()["data"]["ndarray"]
    elif answer is None:
        assert (reply.status_code, "parameters.n" in reply.text) == (400, True)
    else:
        assert answer == reply.json()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"jsonData": {"inputs": PROMPT, "parameters": [1]}}, "jsonData.parameters: expected an object"),
        ({"strData": PROMPT, "meta": {"tags": {"parameters": 1}}}, "meta.tags.parameters: expected an object"),
        ({"jsonData": {"messages": []}}, "there is no prompt"),
        ({"jsonData": {"messages": [{"role": "x", "content": "a"}]}}, "messages[0].role"),
        ({"jsonData": {"inputs": PROMPT, "temperature": 1}}, "temperature"),
    ],
)
def test_seldon_tells_it_wrongly(tinychat: LiveGateway, body: Any, text: str) -> None:
    """What is no parameters and no conversation is refused with its place."""
    reply = httpx.post(tinychat.url + SELDON, json=body, timeout=30)
    assert (reply.status_code, text in reply.text) == (400, True), reply.text


def test_seldon_asks_with_a_string(tinychat: LiveGateway) -> None:
    """`strData` in is `strData` out."""
    path = "/services/tinychat/api/v1.0/predictions"
    reply = httpx.post(tinychat.url + path, json={"strData": PROMPT}, timeout=30)
    assert reply.json()["strData"].startswith(ANSWER)


def test_text_comes_as_it_is_written(tinychat: LiveGateway) -> None:
    """Each event of generate_stream has the next piece; together they are the answer."""
    body = {"text_input": PROMPT, "parameters": {"ignore_eos": True, "max_tokens": 300}}
    whole = httpx.post(f"{tinychat.url}/v2/models/tinychat/generate", json=body, timeout=30).json()["text_output"]
    with httpx.stream("POST", f"{tinychat.url}/v2/models/tinychat/generate_stream", json=body, timeout=30) as reply:
        events = [json.loads(line[6:]) for line in reply.iter_lines() if line]
    assert len(events) > 1
    assert "".join(event["text_output"] for event in events) == whole


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/models/tinychat:predict", {"instances": [PROMPT], "parameters": {"temperature": -1}}),
        ("/endpoints/tinychat/invocations", {"inputs": PROMPT, "parameters": {"temperature": -1}}),
        ("/v2/models/tinychat/generate", {"text_input": PROMPT, "temperature": -1}),
    ],
)
def test_wrong_parameter_is_the_callers_mistake(tinychat: LiveGateway, path: str, body: Any) -> None:
    """The refusal names the parameter, whatever the protocol."""
    reply = httpx.post(tinychat.url + path, json=body, timeout=30)
    assert 400 <= reply.status_code < 500
    assert "parameters.temperature: expected a number from 0 to 2" in reply.text


def test_long_answers_do_not_hold_the_gateway_up(tinychat: LiveGateway) -> None:
    """While answers are being written, another request is answered in the meantime."""
    body = {"text_input": PROMPT, "parameters": {"ignore_eos": True}}
    with httpx.stream("POST", f"{tinychat.url}/v2/models/tinychat/generate_stream", json=body, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        began = time.monotonic()
        assert httpx.get(f"{tinychat.url}/healthz").status_code == 200
        assert time.monotonic() - began < 5
        next(lines)
