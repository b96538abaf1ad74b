"""Bodies, connections and memory of a live gateway are bounded, whatever clients do."""

import gzip
import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from bounded import GOOD, PREDICT, ask, exchange, head, limited, logged_once, told, unharmed
from live import LiveGateway, becomes, gateway, put_echo


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    with limited(tmp_path_factory.mktemp("bounds")) as running:
        yield running


@pytest.fixture(autouse=True)
def _unharmed(live: LiveGateway) -> Iterator[None]:
    with unharmed(live):
        yield


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
        while b'"error"' not in answer and (more := connection.recv(65536)):
            answer += more
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert b'"error"' in answer
    assert logged_once(live, "stalled")


def test_a_head_that_stalls_is_408(live: LiveGateway) -> None:
    """A byte now and then does not extend its time."""
    whole = head(PREDICT, "Content-Length: 0")
    answer = exchange(live, *(whole[at : at + 1] for at in range(9)), pause=0.1)
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
