"""Limits on a live gateway: the refusal in every dialect, at once, and nothing left behind."""

import gzip
import json
import re
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from live import LiveGateway, becomes, gateway, put_echo

CONFIG = """
models_dir = "models"
[limits]
body_bytes = 8_000_000
bodies_bytes = 12_000_000
body_seconds = 0.5
head_seconds = 0.5
stall_seconds = 0.5
connections = 64
wrong_keys_per_second = 50
output_bytes = 4_000_000
[services.slow.limits]
concurrency = 1
queue = 1
[services.rated.limits]
requests_per_second = 1
key = { requests_per_second = 1 }
[services.keyed]
model = "echo"
app_auth = true
app_codes = ["alpha-code", "beta-code"]
[services.keyed.limits]
key = { requests_per_second = 3 }
[services.other]
model = "echo"
app_auth = true
app_codes = ["other-code"]
"""
GOOD = b'{"instances": [1.5]}'
PREDICT = "/v1/models/free:predict"

DIALECTS: dict[str, tuple[str, bytes, Callable[[Any], object]]] = {
    "tfserving": ("/v1/models/{}:predict", GOOD, lambda body: body["error"]),
    "seldon": (
        "/services/{}/api/v1.0/predictions",
        b'{"data": {"ndarray": [1.5]}}',
        lambda body: body["status"]["info"] if body["status"]["status"] == "FAILURE" else None,
    ),
    "sagemaker": ("/endpoints/{}/invocations", b'{"instances": [1.5]}', lambda body: body.get("Message")),
    "container": ("/services/{}/invocations", b'{"instances": [1.5]}', lambda body: body["message"]),
    "v2": (
        "/v2/models/{}/infer",
        b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.5]}]}',
        lambda body: body["error"],
    ),
    "openai": (
        "/services/{}/v1/embeddings",
        b'{"model": "SERVICE", "input": "a"}',
        lambda body: body["error"]["message"] if body["error"].keys() >= {"type", "param", "code"} else None,
    ),
}
"""Path, a good body, and where the text of an error stands in the dialect."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    base = tmp_path_factory.mktemp("bounds")
    for name in ("free", "rated", "echo"):
        put_echo(base / "models", name)
    put_echo(base / "models", "slow", "[echo]\ndelay_ms = 400\n")
    (base / "gateway.toml").write_text(CONFIG)
    with gateway(base / "gateway.toml") as running:
        yield running


@pytest.fixture(autouse=True)
def _as_before(live: LiveGateway) -> Iterator[None]:
    """After each: alive, healthy, the next good request right, nothing in flight, memory bounded."""
    process = psutil.Process(live.process.pid)
    before = process.memory_info().rss
    yield
    assert httpx.get(f"{live.url}/healthz").status_code == 200
    assert httpx.post(f"{live.url}{PREDICT}", content=GOOD).json() == {"predictions": [1.5]}
    for gauge in ("in_flight", "running", "waiting"):
        live.wait_for_metric(f"tensorgate_requests_{gauge}", 0)
    live.wait_for_metric("tensorgate_body_bytes_held", 0)
    assert process.memory_info().rss - before < 200 << 20


def ask(live: LiveGateway, dialect: str, service: str, **headers: str) -> httpx.Response:
    """A good request of that dialect."""
    path, body, _ = DIALECTS[dialect]
    headers = {"content-type": "application/json"} | headers
    if dialect == "openai":
        headers["x-stainless-lang"] = "python"
        body = body.replace(b"SERVICE", service.encode())
    return httpx.post(f"{live.url}{path.format(service)}", content=body, headers=headers, timeout=20)


def told(dialect: str, reply: httpx.Response) -> str:
    """The text of an error, which must stand where the dialect has it."""
    text = DIALECTS[dialect][2](reply.json())
    assert isinstance(text, str), reply.text
    return text


def logged_once(live: LiveGateway, request_id: str) -> bool:
    """Whether the access log has exactly one line of the request."""
    live.wait_for_log(f'"id":"{request_id}"')
    return live.errors().count(f'"id":"{request_id}"') == 1


def exchange(live: LiveGateway, *pieces: bytes, pause: float = 0.0, seconds: float = 5.0) -> bytes:
    """Everything that is answered to raw bytes, sent piece by piece, until the end of the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", live.port), timeout=seconds) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            while chunk := connection.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass
    return answer


def head(path: str = PREDICT, *lines: str) -> bytes:
    """A request's head."""
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: a", *lines, "", ""]).encode()


class Busy:
    """Keeps the slow service's only place, and its line of one if wanted, taken."""

    def __init__(self, live: LiveGateway, requests: int) -> None:
        self._live = live
        self._requests = requests
        self._pool = ThreadPoolExecutor(requests)

    def __enter__(self) -> "Busy":
        self.replies = [self._pool.submit(ask, self._live, "tfserving", "slow") for _ in range(self._requests)]
        self._live.wait_for_metric("tensorgate_requests_in_flight", self._requests)
        return self

    def __exit__(self, *_: object) -> None:
        assert {reply.result().status_code for reply in self.replies} == {200}
        self._pool.shutdown()


# Places, deadlines, rates (rows 11, 12, 36, 44)...


@pytest.mark.parametrize(
    ("dialect", "status"),
    [("tfserving", 503), ("seldon", 503), ("sagemaker", 503), ("container", 503), ("v2", 503), ("openai", 429)],
)
def test_a_full_service_refuses_at_once(live: LiveGateway, dialect: str, status: int) -> None:
    """Who finds place and line taken is told so, and when to come again."""
    with Busy(live, 2) as busy:
        reply = ask(live, dialect, "slow", **{"x-request-id": f"full-{dialect}"})
        assert not all(one.done() for one in busy.replies)
    assert reply.status_code == status, reply.text
    assert "no room for more requests: 1 run, 1 wait" in told(dialect, reply)
    assert int(reply.headers["retry-after"]) >= 1
    assert logged_once(live, f"full-{dialect}")


@pytest.mark.parametrize(
    ("dialect", "status"),
    [("tfserving", 504), ("seldon", 504), ("sagemaker", 424), ("container", 504), ("v2", 504)],
)
def test_a_deadline_ends_a_run(live: LiveGateway, dialect: str, status: int) -> None:
    """In the caller's dialect, though the model would have had an answer later."""
    reply = ask(live, dialect, "slow", **{"x-tensorgate-deadline-ms": "50", "x-request-id": f"late-{dialect}"})
    assert reply.status_code == status, reply.text
    assert told(dialect, reply)
    assert logged_once(live, f"late-{dialect}")


def test_a_deadline_ends_the_wait_for_a_place(live: LiveGateway) -> None:
    """The request never runs, and is counted where it was given up."""
    before = live.metric("tensorgate_requests_cancelled_total", service="slow", stage="queue")
    with Busy(live, 1):
        reply = ask(live, "tfserving", "slow", **{"x-tensorgate-deadline-ms": "60"})
    assert reply.status_code in (503, 504)
    if reply.status_code == 504:
        assert live.metric("tensorgate_requests_cancelled_total", service="slow", stage="queue") == before + 1


def test_a_client_that_leaves_the_line_never_runs(live: LiveGateway) -> None:
    """Its place in line is free at once, and nothing is run for it."""
    before = live.metric("tensorgate_requests_cancelled_total", service="slow", stage="queue")
    with Busy(live, 1):
        with socket.create_connection(("127.0.0.1", live.port)) as connection:
            request = head("/v1/models/slow:predict", f"Content-Length: {len(GOOD)}", "X-Request-Id: left-line")
            connection.sendall(request + GOOD)
            live.wait_for_metric("tensorgate_requests_waiting", 1, service="slow")
        live.wait_for_metric("tensorgate_requests_waiting", 0, service="slow", seconds=0.3)
    assert live.metric("tensorgate_requests_cancelled_total", service="slow", stage="queue") == before + 1
    assert logged_once(live, "left-line")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_rate_is_told_in_every_dialect(live: LiveGateway, dialect: str) -> None:
    """429 with Retry-After; OpenAI's clients also learn the limit."""
    replies = [ask(live, dialect, "rated") for _ in range(3)]
    refused = replies[-1]
    assert refused.status_code == 429, refused.text
    assert "1 requests a second" in told(dialect, refused)
    assert refused.headers["retry-after"] == "1"
    if dialect == "openai":
        assert refused.headers["x-ratelimit-limit-requests"] == "1"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert refused.headers["x-ratelimit-reset-requests"].endswith(("s", "ms"))


def test_each_key_has_a_rate_of_its_own(live: LiveGateway) -> None:
    """Four requests at once: three of a key get in; another key is not affected."""

    def status(key: str) -> int:
        return ask(live, "tfserving", "keyed", authorization=f"APPCODE {key}").status_code

    assert [status("alpha-code") for _ in range(4)] == [200, 200, 200, 429]
    assert status("beta-code") == 200


# Keys (rows 34, 35)...


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Basic YTpi"},
        {"authorization": "APPCODE wrong"},
        {"authorization": "APPCODE " + "x" * 60_000},
        {"authorization": "APPCODE"},
        {"x-tensorgate-key": "\N{LATIN SMALL LETTER E WITH ACUTE}".encode("latin-1").decode("latin-1")},
    ],
    ids=["none", "scheme", "wrong", "long", "empty", "latin"],
)
def test_a_missing_or_wrong_key_is_401(live: LiveGateway, headers: dict[str, str]) -> None:
    """Whatever is wrong with it."""
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    reply = httpx.post(f"{live.url}/v1/models/keyed:predict", content=GOOD, headers=encoded)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"]


def test_a_key_of_another_service_is_403(live: LiveGateway) -> None:
    """It is valid, but not for this."""
    assert ask(live, "tfserving", "keyed", authorization="APPCODE other-code").status_code == 403


def test_a_flood_of_wrong_keys_leaves_nothing_behind(live: LiveGateway) -> None:
    """Thousands of distinct ones: 401, then 429; memory stays, and a good key is served meanwhile."""
    process = psutil.Process(live.process.pid)

    def requests(first: int) -> bytes:
        return b"".join(
            head("/v1/models/keyed:predict", "Content-Length: 0", f"Authorization: APPCODE wrong-{number:0200}")
            for number in range(first, first + 50)
        )

    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        codes: Counter[bytes] = Counter()
        for first in range(0, 2_000, 50):
            if first == 200:
                before = process.memory_info().rss
            connection.sendall(requests(first))
            got = b""
            while len(found := re.findall(rb"HTTP/1.1 (\d+)", got)) < 50:
                got += connection.recv(1 << 16)
            codes.update(found)
    assert codes.keys() == {b"401", b"429"}
    assert codes.total() == 2_000
    assert process.memory_info().rss - before < 8 << 20
    assert ask(live, "tfserving", "other", authorization="APPCODE other-code").status_code == 200


# Bodies (rows 1 to 5, 9)...


def test_nested_and_unknown_codings_are_415(live: LiveGateway) -> None:
    """Only one gzip is undone."""
    for coding in ("gzip, gzip", "br", "gzip, br", "zstd"):
        reply = httpx.post(f"{live.url}/v2/models/free/infer", content=GOOD, headers={"content-encoding": coding})
        assert reply.status_code == 415, coding


@pytest.mark.parametrize("spoil", [lambda packed: packed[:-6], lambda packed: packed[:20] + b"\0" + packed[21:]])
def test_a_broken_gzip_is_400(live: LiveGateway, spoil: Callable[[bytes], bytes]) -> None:
    """Cut off or corrupt."""
    packed = spoil(gzip.compress(b'{"instances": [' + b"1.25, " * 200 + b"1]}"))
    reply = httpx.post(f"{live.url}{PREDICT}", content=packed, headers={"content-encoding": "gzip"})
    assert reply.status_code == 400


def test_a_body_that_stalls_is_408(live: LiveGateway) -> None:
    """Slow clients hold nothing for long, and others are served meanwhile."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=5) as connection:
        connection.sendall(head(PREDICT, "Content-Length: 100", "X-Request-Id: stalled") + b'{"inst')
        assert httpx.post(f"{live.url}{PREDICT}", content=GOOD).status_code == 200
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert b'"error"' in answer
    assert logged_once(live, "stalled")


def test_a_head_that_stalls_is_408(live: LiveGateway) -> None:
    """A byte now and then does not extend its time."""
    whole = head(PREDICT, "Content-Length: 0")
    answer = exchange(live, *(whole[at : at + 1] for at in range(9)), pause=0.05)
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert live.metric("tensorgate_connections_refused_total", reason="head_seconds") >= 1


def test_bodies_share_a_bound(live: LiveGateway) -> None:
    """Many large ones at a time are not taken, and the rest are answered right."""
    large = b'{"instances": [' + b"1.25, " * 900_000 + b"1]}"
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: httpx.post(f"{live.url}{PREDICT}", content=large, timeout=60), range(12)))
    codes = {reply.status_code for reply in replies}
    assert codes <= {200, 503}
    assert 200 in codes
    refused = [reply for reply in replies if reply.status_code == 503]
    for reply in refused:
        assert "bodies of other requests" in reply.json()["error"]
        assert reply.headers["retry-after"] == "1"


def test_an_answer_has_a_bound(live: LiveGateway) -> None:
    """What would be too much to write out is refused as the caller's mistake."""
    reply = httpx.post(f"{live.url}{PREDICT}", content=b'{"instances": [' + b"1, " * 1_100_000 + b"1]}", timeout=30)
    assert reply.status_code == 413
    assert "the answer has 4400004 bytes" in reply.json()["error"]


def test_rows_of_nothing_do_not_hold_up_others(live: LiveGateway) -> None:
    """A third of a million empty rows are read and written on a thread."""
    empty = b"[" + b"[]," * 349_000 + b"[]]"
    with ThreadPoolExecutor(1) as pool:
        hostile = pool.submit(
            httpx.post, f"{live.url}/services/free/invocations", content=empty,
            headers={"content-type": "application/json"}, timeout=30,
        )  # fmt: skip
        assert httpx.post(f"{live.url}{PREDICT}", content=GOOD).json() == {"predictions": [1.5]}
        assert hostile.result().status_code in (200, 400)


# Connections (rows 10, 13 to 17, 48)...


def test_a_client_that_never_reads_is_cut_off(live: LiveGateway) -> None:
    """Its answer does not wait for it for ever."""
    body = b'{"instances": [' + b"1.25, " * 900_000 + b"1]}"
    before = live.metric("tensorgate_connections_refused_total", reason="stall_seconds")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", live.port))
        connection.sendall(head(PREDICT, f"Content-Length: {len(body)}") + body)
        live.wait_for_metric("tensorgate_connections_refused_total", before + 1, reason="stall_seconds")


def test_expect_100_continue_is_refused_without_100(live: LiveGateway) -> None:
    """Who asks before sending too much never gets to send it."""
    answer = exchange(live, head(PREDICT, "Content-Length: 9000000", "Expect: 100-continue", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:100]
    assert b" 100 " not in answer[:40]


def test_a_wrong_method_is_told_the_right_one(live: LiveGateway) -> None:
    """405 with Allow, and 404 for a path that nobody has."""
    reply = httpx.get(f"{live.url}/v2/models/free/infer")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert httpx.get(f"{live.url}/v2/nothing/here").status_code == 404


def test_forged_addresses_are_ignored(live: LiveGateway) -> None:
    """The log has the peer that is connected, and no header makes a service another."""
    forged = {"x-forwarded-for": "6.6.6.6", "forwarded": "for=6.6.6.6", "x-real-ip": "6.6.6.6",
              "x-request-id": "forged", "x-forwarded-host": "keyed", "host": "keyed.example.com"}  # fmt: skip
    reply = httpx.post(f"{live.url}{PREDICT}", content=GOOD, headers=forged)
    assert reply.status_code == 200
    assert logged_once(live, "forged")
    line = next(line for line in live.errors().splitlines() if '"id":"forged"' in line)
    assert json.loads(line)["peer"] == "127.0.0.1"
    assert "6.6.6.6" not in line


def test_connections_have_a_bound(live: LiveGateway) -> None:
    """Silent ones make room for one that speaks; where all are busy the next is told so."""
    connections = [socket.create_connection(("127.0.0.1", live.port), timeout=5) for _ in range(80)]
    try:
        for connection in connections:
            connection.sendall(b"POST /v1")
        answers = []
        for connection in connections[64:]:
            try:
                answers.append(connection.recv(4096))
            except (TimeoutError, ConnectionResetError):
                answers.append(b"")
        assert any(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
    finally:
        for connection in connections:
            connection.close()
    assert becomes(lambda: live.metric("tensorgate_connections") <= 2, 5)


def test_running_out_of_files_ends_nothing(live: LiveGateway) -> None:
    """Connections beyond are dropped, no core is burnt for it, and afterwards all is well."""
    process = psutil.Process(live.process.pid)
    limits = resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE, (process.num_fds() + 5, limits[1]))
    connections = []
    try:
        connections = [socket.create_connection(("127.0.0.1", live.port), timeout=5) for _ in range(40)]
        burnt = sum(process.cpu_times()[:2])
        time.sleep(0.4)
        burnt = sum(process.cpu_times()[:2]) - burnt
    finally:
        for connection in connections:
            connection.close()
        resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE, limits)
    assert burnt < 0.3
    assert becomes(lambda: _is_well(live), 5)


def _is_well(live: LiveGateway) -> bool:
    try:
        return httpx.get(f"{live.url}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def test_memory_that_is_short_refuses_all_but_health(tmp_path: Path) -> None:
    """A limit below what the process has: inference 503 in the caller's dialect, health 200."""
    put_echo(tmp_path / "models", "free")
    (tmp_path / "gateway.toml").write_text('models_dir = "models"\n[limits.memory]\nlimit_bytes = 1\nseconds = 0.05\n')
    with gateway(tmp_path / "gateway.toml") as short:
        short.wait_for_metric("tensorgate_memory_stage", 3)
        for dialect, status in (("tfserving", 503), ("seldon", 503), ("v2", 503), ("openai", 429)):
            reply = ask(short, dialect, "free")
            assert reply.status_code == status
            assert "memory is short" in told(dialect, reply)
            assert reply.headers["retry-after"] == "5"
        for path in ("/healthz", "/v2/health/ready", "/v2/health/live", "/ping"):
            assert httpx.get(f"{short.url}{path}").status_code == 200, path
        assert short.metric("tensorgate_requests_refused_total", reason="memory") == 4
