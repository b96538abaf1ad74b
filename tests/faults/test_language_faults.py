"""What a hostile client may ask of a language model: it is refused as its mistake, and nobody else waits for it."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import LiveGateway, gateway

MODELS = Path(__file__).resolve().parents[2] / "configs" / "models"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello!"}]
MOST_SECONDS = 3.0
"""What no other request may wait meanwhile, however busy the machine is."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    config = tmp_path_factory.mktemp("language") / "gateway.toml"
    config.write_text(f'[gateway]\ndevice = "cpu"\naccess_log = "off"\n[models]\ntinychat = "{MODELS / "tinychat"}"\n')
    with gateway(config) as running:
        yield running


def _chat(**more: Any) -> dict[str, Any]:
    return {"model": "tinychat", "messages": HELLO, "max_tokens": 64} | more


def _schema(schema: Any) -> dict[str, Any]:
    return _chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})


def _many(count: int) -> bytes:
    return b'{"model":"tinychat","messages":[%s{}]}' % (b'{"role":"user","content":"a"},' * count)


def _nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}, "required": ["a"]}
    return schema


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
GRAMMAR = (
    "".join(f"{rule}: (a{n} a{n})*\n" for n, rule in enumerate(["start", *(f"a{n}" for n in range(12))])) + 'a12: "x"'
)
REFUSED, EITHER = (400,), (200, 400)
ROWS: dict[str, tuple[Any, tuple[int, ...], str | None]] = {
    "a million messages": (_many(1_000_000), (413,), None),
    "more objects than a conversation has": (_many(100_000), (413,), None),
    "more messages than a conversation has": (_many(20_000), REFUSED, "messages"),
    "a long conversation": (_chat(messages=HELLO * 16_000), REFUSED, "messages"),
    "a prompt beyond the context": ({"model": "tinychat", "prompt": "word " * 400_000}, REFUSED, "prompt"),
    "a message beyond the context": (_chat(messages=[HELLO[0] | {"content": "a b" * 2_000_000}]), REFUSED, "messages"),
    "lists as deep as a body holds": (b'{"model":"tinychat","messages":' + b"[" * 60_000, (400, 413), None),
    "invalid UTF-8": (b'{"model":"tinychat","messages":[{"role":"user","content":"\xff\xfe"}]}', REFUSED, None),
    "half a surrogate pair": (b'{"model":"tinychat","messages":[{"role":"user","content":"\\ud800"}]}', REFUSED, None),
    "a regex that explodes": (_chat(structured_outputs={"regex": "((a{1,999}){1,999}){1,999}"}), EITHER, None),
    "a grammar that explodes": (_chat(structured_outputs={"grammar": GRAMMAR}), EITHER, None),
    "a schema that doubles twelve times": (_schema(_nested(12)), EITHER, None),
    "a schema of a billion items": (
        _schema({"type": "array", "items": {"type": "string", "minLength": 10**9}, "minItems": 10**9}),
        EITHER,
        None,
    ),
    "a schema that is itself": (_schema({"$ref": "#"}), EITHER, None),
    "a schema from elsewhere": (_schema({"$ref": "http://127.0.0.1:1/a.json"}), REFUSED, None),
    "a pattern that explodes": (_schema({"type": "string", "pattern": "^(([a-z]{1,99}){1,99}){1,99}$"}), EITHER, None),
    "an enumeration of a hundred thousand": (_schema({"enum": [f"{n}" * 8 for n in range(100_000)]}), EITHER, None),
    "a hundred tools of deep schemas": (
        _chat(tools=[{"type": "function", "function": {"name": f"f{n}", "parameters": _nested(4)}} for n in range(100)],
              tool_choice="required"),
        EITHER,
        None,
    ),
    "too many tools": (_chat(tools=[TOOL] * 129), REFUSED, "tools"),
    "a bias for everything": (_chat(logit_bias={str(n): 1 for n in range(100_000)}), REFUSED, "logit_bias"),
    "a thousand stop strings": (_chat(stop=["a"] * 1000), REFUSED, "stop"),
    "a megabyte of stop string": (_chat(stop="a" * 1_000_000), REFUSED, "stop"),
    "values that the template cannot take": (_chat(chat_template_kwargs={"messages": 1, "tools": 5}), EITHER, None),
    "a number of no size": (b'{"model":"tinychat","messages":[],"seed":%s}' % (b"9" * 5000), REFUSED, None),
}  # fmt: skip
"""Body, statuses, and the parameter that is named; what is merely large may be answered too."""


class Others(threading.Thread):
    """Somebody else, who asks all the time; `most` is what an answer took at most."""

    def __init__(self, live: LiveGateway) -> None:
        super().__init__()
        self._url = live.url
        self._over = threading.Event()
        self.most = 0.0

    def run(self) -> None:
        """Ask until it is over."""
        with httpx.Client(timeout=60) as client:
            while not self._over.is_set():
                began = time.monotonic()
                reply = client.post(self._url + CHAT, json=_chat(max_tokens=1, temperature=0))
                assert reply.json()["choices"][0]["message"]["content"] == "Hello"
                self.most = max(self.most, time.monotonic() - began)

    def __enter__(self) -> "Others":
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self.join()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("row", ROWS)
def test_a_hostile_request(live: LiveGateway, row: str, stream: bool) -> None:
    """It is the client's mistake, told in OpenAI's form with its status, before any event of a stream."""
    body, statuses, param = ROWS[row]
    path = TEXT if isinstance(body, dict) and "prompt" in body else CHAT
    content = body if isinstance(body, bytes) else json.dumps(body | {"stream": stream}).encode()
    if isinstance(body, bytes) and stream:
        content = content.replace(b"{", b'{"stream":true,', 1)
    with Others(live) as others:
        reply = httpx.post(live.url + path, content=content, timeout=60)
    assert reply.status_code in statuses, reply.text[:500]
    if reply.status_code != 200:
        error = reply.json()["error"]
        assert {"message", "type", "param", "code"} == error.keys()
        assert param in (None, error["param"])
    assert others.is_alive() is False
    assert others.most < MOST_SECONDS


def test_a_template_of_the_clients_is_not_used(live: LiveGateway) -> None:
    """Only the model's own template is run: a field with another is ignored, and named as such."""
    bomb = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    reply = httpx.post(live.url + CHAT, json=_chat(chat_template=bomb, temperature=0), timeout=60)
    assert (reply.status_code, reply.headers["x-ignored-params"]) == (200, "chat_template")
    assert reply.json()["choices"][0]["message"]["content"] == "Hello! How can I help you today?"
