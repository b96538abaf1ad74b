"""The cases of OpenAI's API against a live gateway with the demo's language model."""

import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest
from conformance.openai import checks, sse
from conformance.openai.cases import Case, load
from live import LiveGateway

CASES = load()


def _ask(live: LiveGateway, case: Case) -> httpx.Response:
    request = case.request
    url = f"{live.url}{request['path']}"
    return httpx.request(request["method"], url, content=case.body, headers=case.headers, timeout=60)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_case(live: LiveGateway, case: Case) -> None:
    """Status, headers and body are as the case says."""
    expect, reply = case.expect, _ask(live, case)
    wanted = expect["status"]
    assert reply.status_code in (wanted if isinstance(wanted, list) else [wanted]), reply.text
    assert reply.headers["x-request-id"]
    for name, pattern in expect.get("headers", {}).items():
        assert checks.OPS["re"](reply.headers[name], pattern), reply.headers[name]
    if reply.status_code != 200 or "error" in expect:
        checks.error(reply.json(), expect.get("error", {}))
    elif "sse" in expect:
        _check_stream(sse.chunks_of(reply.text), expect)
    else:
        _check_whole(live, case, reply.json())


def _check_stream(chunks: list[dict[str, Any]], expect: dict[str, Any]) -> None:
    for kind in expect["sse"]:
        sse.check(kind, chunks)
    if "choices" in expect:
        assert len(sse.reasons(chunks)) == expect["choices"]
    if "stream_finish" in expect:
        assert set(sse.reasons(chunks)) <= set(expect["stream_finish"])
    if "max_tokens" in expect:
        assert chunks[-1]["usage"]["completion_tokens"] <= expect["max_tokens"]
    if "content_json_if_stop" in expect and sse.reasons(chunks) == ["stop"]:
        assert checks.valid(json.loads(sse.joined(chunks)), expect["content_json_if_stop"])


def _check_whole(live: LiveGateway, case: Case, answer: dict[str, Any]) -> None:
    expect = case.expect
    for path, op, wanted in expect.get("json", ()):
        checks.compare(answer, path, op, wanted)
    if path := expect.get("repeat_equal"):
        assert checks.at(_ask(live, case).json(), path) == checks.at(answer, path)
    if "same_value" in expect:
        other, path = expect["same_value"]
        assert checks.at(_ask(live, CASES[other]).json(), path) == checks.at(answer, path)
    if other := expect.get("more_tokens_than"):
        plain = _ask(live, CASES[other]).json()["usage"]["prompt_tokens"]
        assert answer["usage"]["prompt_tokens"] > plain + 3
    if "max_tokens" in expect:
        assert answer["usage"]["completion_tokens"] <= expect["max_tokens"]
    if other := expect.get("base64_same_as"):
        plain = _ask(live, CASES[other]).json()["data"][0]["embedding"]
        packed = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
        assert packed.tolist() == np.array(plain, np.float32).tolist()
    _check_choice(expect, answer)


def _check_choice(expect: dict[str, Any], answer: dict[str, Any]) -> None:
    """What is said of the first choice."""
    if not answer.get("choices"):
        return
    choice = answer["choices"][0]
    content = choice.get("message", {}).get("content")
    for text in expect.get("text_absent", ()):
        assert text not in content
    entries = (choice["logprobs"] or {}).get("content") or ()
    if expect.get("top_sorted"):
        assert entries
        for entry in entries:
            likely = [one["logprob"] for one in entry["top_logprobs"]]
            assert likely == sorted(likely, reverse=True)
    if expect.get("greedy_is_top"):
        assert [entry["token"] for entry in entries] == [entry["top_logprobs"][0]["token"] for entry in entries]
    if "content_json_if_stop" in expect and choice["finish_reason"] == "stop":
        assert checks.valid(json.loads(content), expect["content_json_if_stop"])
    if expect.get("tools_consistent"):
        assert bool(choice["message"].get("tool_calls")) == (choice["finish_reason"] == "tool_calls")


def test_a_stream_says_what_the_whole_answer_says(live: LiveGateway) -> None:
    """The same seed gives the same text, token counts and reasons, whole or in parts."""
    case = CASES["nonstream-twin"]
    whole = _ask(live, case).json()
    body = case.request["body"] | {"stream": True, "stream_options": {"include_usage": True}, "n": 1}
    streamed = sse.chunks_of(_ask(live, case._replace(request=case.request | {"body": body})).text)
    assert sse.joined(streamed) == whole["choices"][0]["message"]["content"]
    assert sse.reasons(streamed) == [whole["choices"][0]["finish_reason"]]
    assert streamed[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_a_client_that_leaves_frees_its_place(live: LiveGateway) -> None:
    """Whole or streamed, an answer that nobody waits for is not written on: the next one need not wait for a slot."""
    body = {"model": "chatter", "messages": [{"role": "user", "content": "Tell me a story."}], "n": 8}
    body |= {"ignore_eos": True, "max_tokens": 900, "temperature": 1}
    url, headers = f"{live.url}/v1/chat/completions", {"authorization": "Bearer opensesame"}
    with httpx.stream("POST", url, json=body | {"stream": True}, headers=headers) as reply:
        lines = reply.iter_lines()
        assert [next(lines).partition(":")[0] for _ in range(3)] == ["data", "", "data"]
    live.wait_for_metric("tensorgate_requests_in_flight", 0, 1)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json=body, headers=headers, timeout=0.2)
    live.wait_for_metric("tensorgate_requests_in_flight", 0, 1)
    short = body | {"max_tokens": 1, "n": 1}
    assert httpx.post(url, json=short, headers=headers, timeout=1).status_code == 200


def test_dimensions_cut_a_vector_that_was_made_for_it(live: LiveGateway) -> None:
    """A shorter vector is the longer one's beginning, of length 1 again; a longer one there is not."""

    def embed(**more: int) -> httpx.Response:
        body = {"model": "vectors", "input": ["hello world", "hello"]} | more
        return httpx.post(f"{live.url}/v1/embeddings", json=body, headers={"authorization": "Bearer opensesame"})

    whole = np.array([one["embedding"] for one in embed().json()["data"]])
    short = np.array([one["embedding"] for one in embed(dimensions=3).json()["data"]])
    assert whole.shape == (2, 8)
    cut = whole[:, :3] / np.linalg.norm(whole[:, :3], axis=1, keepdims=True)
    np.testing.assert_allclose(short, cut, rtol=1e-5)
    assert embed(dimensions=8).json()["data"][0]["embedding"] == whole[0].tolist()
    assert embed(dimensions=9).json()["error"]["param"] == "dimensions"
