"""A gateway before others: clients that leave, servers that die under load, and what the server behind is told."""

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from conformance.openai.models import DEMO
from live import LiveGateway, gateway, put_echo
from scene import on_loop
from upstream import always, answer, chat, upstream

ROWS: dict[str, Any] = {"instances": [[1.0], [2.0]]}
STORY: dict[str, Any] = {
    "model": "llm",
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "ignore_eos": True,
    "n": 8,
    "max_tokens": 900,
}


def put(models: Path, name: str, table: str) -> None:
    """A model that another server runs."""
    (models / name).mkdir(parents=True)
    (models / name / "model.toml").write_text(f'backend = "remote"\n[remote]\n{table}', "utf-8")


@contextlib.contextmanager
def echoes(base: Path, count: int) -> Iterator[list[LiveGateway]]:
    """As many gateways that echo."""
    put_echo(base / "echoes", "e")
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(gateway("--models", base / "echoes")) for _ in range(count)]
        for one in running:
            one.wait_until("/readyz", 200)
        yield running


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_leaves(tmp_path: Path, stream: bool) -> None:
    """It frees the place at the server behind, long before the answer would have been whole."""
    with gateway("--models", DEMO, "--device", "cpu") as back:
        back.wait_until("/v1/models/tinychat", 200)
        put(tmp_path, "llm", f'kind = "openai"\nurls = ["{back.url}/v1"]\nmodel = "tinychat"\n')
        with gateway("--models", tmp_path) as front:
            front.wait_until("/readyz", 200)
            with httpx.Client() as client:
                url = f"{front.url}/v1/chat/completions"
                if stream:
                    with client.stream("POST", url, json=STORY | {"stream": True}) as reply:
                        assert next(reply.iter_lines()).startswith("data: ")
                else:
                    with pytest.raises(httpx.ReadTimeout):
                        client.post(url, json=STORY, timeout=0.3)
            back.wait_for_metric("tensorgate_requests_in_flight", 0)
            front.wait_for_metric("tensorgate_requests_in_flight", 0)
        back.wait_for_log('"operation":"infer"')
        [line] = [json.loads(line) for line in back.errors().splitlines() if "/v1/chat/completions" in line]
    # Whole, a stream of these answers has more than a megabyte.
    assert line["bytes_out"] < 500_000 if stream else line["status"] == 499


def test_server_killed_under_load(tmp_path: Path) -> None:
    """Not one request fails when one of two servers dies; the status tells of it, and the gateway stays ready."""
    with echoes(tmp_path, 2) as (first, second):
        urls = f'urls = ["{first.url}", "{second.url}"]\nmodel = "e"\neject_seconds = 60\n'
        put(tmp_path / "front", "m", f'kind = "tfserving"\n{urls}')
        with gateway("--models", tmp_path / "front") as front, httpx.Client(timeout=30) as client:
            front.wait_until("/readyz", 200)

            def ask(number: int) -> int:
                if number == 100:
                    second.stop(signal.SIGKILL)
                return client.post(f"{front.url}/v1/models/m:predict", json=ROWS).status_code

            with ThreadPoolExecutor(4) as pool:
                assert Counter(pool.map(ask, range(300))) == {200: 300}
            assert httpx.get(f"{front.url}/services/m/ready").status_code == 200


def test_readiness_follows_the_server(tmp_path: Path) -> None:
    """A model whose server is down loads if its tensors are declared, says that it is not ready, and refuses calls."""
    declared = "inputs.x = { shape = [-1, 1] }\noutputs.x = { shape = [-1, 1] }\nstart_seconds = 0\nretries = 0\n"
    with echoes(tmp_path, 1) as (back,):
        put(tmp_path / "front", "m", f'kind = "v2"\nurls = ["{back.url}"]\nmodel = "e"\neject_after = 1\n{declared}')
        with gateway("--models", tmp_path / "front") as front:
            front.wait_until("/services/m/ready", 200)
            predict = f"{front.url}/v1/models/m:predict"
            assert httpx.post(predict, json=ROWS).json() == {"predictions": [[1.0], [2.0]]}
            back.stop(signal.SIGKILL)
            refused = httpx.post(predict, json=ROWS)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.json() == {"error": "the model's server does not take connections just now"}
            for path in ("/services/m/ready", "/services/m/v2/models/m/ready", "/v2/models/m/ready"):
                assert httpx.get(f"{front.url}{path}").status_code in (400, 503), path
            assert "1 of 1 servers behind it does not answer" in _summary(front)


def _summary(front: LiveGateway) -> str:
    return httpx.get(f"{front.url}/statusz").text


@on_loop
async def test_what_the_server_is_told(tmp_path: Path) -> None:
    """The request's id, the trace and the headers on the list; never the client's key, cookies or connection."""
    async with upstream(always(answer(chat("Hi")))) as back:
        table = f'kind = "openai"\nurls = ["{back.url}/v1"]\nforward_headers = ["X-Tenant"]\nrequired = true\n'
        put(tmp_path, "llm", table)
        front = await asyncio.to_thread(LiveGateway, "--models", str(tmp_path))
        try:
            await asyncio.to_thread(front.wait_until, "/readyz", 200)
            told = {
                "Authorization": "Bearer client", "Cookie": "a=b", "X-Tenant": "t1", "X-Other": "o", "TE": "trailers",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            }  # fmt: skip
            body = {"model": "llm", "messages": [{"role": "user", "content": "Hello!"}]}
            async with httpx.AsyncClient() as client:
                reply = await client.post(f"{front.url}/v1/chat/completions", json=body, headers=told)
        finally:
            await asyncio.to_thread(front.stop)
    headers = back.asked[0].headers
    assert reply.json()["choices"][0]["message"]["content"] == "Hi"
    assert (headers["x-tenant"], headers["traceparent"]) == ("t1", told["traceparent"])
    assert headers["x-request-id"] == reply.headers["x-request-id"]
    assert not {"authorization", "cookie", "x-other", "te"} & headers.keys()
