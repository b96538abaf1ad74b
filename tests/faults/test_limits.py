"""Places, deadlines, rates and keys of a live gateway: refused at once, in every dialect, and nothing left behind."""

import re
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from bounded import DIALECTS, GOOD, ask, head, limited, logged_once, told, unharmed
from live import LiveGateway


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    with limited(tmp_path_factory.mktemp("bounds")) as running:
        yield running


@pytest.fixture(autouse=True)
def _unharmed(live: LiveGateway) -> Iterator[None]:
    with unharmed(live):
        yield


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


def test_a_client_that_leaves_gives_its_place_back(live: LiveGateway) -> None:
    """Where others wait for places, a run ends with its client."""
    before = live.metric("tensorgate_requests_cancelled_total", service="slow", stage="run")
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        with Busy(live, 1):
            connection.sendall(head("/v1/models/slow:predict", f"Content-Length: {len(GOOD)}") + GOOD)
            live.wait_for_metric("tensorgate_requests_waiting", 1, service="slow")
        live.wait_for_metric("tensorgate_requests_waiting", 0, service="slow")
    live.wait_for_metric("tensorgate_requests_running", 0, service="slow")
    assert live.metric("tensorgate_requests_cancelled_total", service="slow", stage="run") == before + 1


def test_a_client_that_leaves_ends_its_run(live: LiveGateway) -> None:
    """Also where nobody waits for its place."""
    before = live.metric("tensorgate_requests_cancelled_total", service="slow", stage="run")
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        connection.sendall(head("/v1/models/slow:predict", f"Content-Length: {len(GOOD)}") + GOOD)
        live.wait_for_metric("tensorgate_requests_running", 1, service="slow")
    live.wait_for_metric("tensorgate_requests_running", 0, service="slow")
    assert live.metric("tensorgate_requests_cancelled_total", service="slow", stage="run") == before + 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_rate_is_told_in_every_dialect(live: LiveGateway, dialect: str) -> None:
    """429 with Retry-After; OpenAI's clients also learn the limit."""
    replies = (ask(live, dialect, "rated") for _ in range(20))
    refused = next(reply for reply in replies if reply.status_code == 429)
    assert "1 requests a second" in told(dialect, refused)
    assert refused.headers["retry-after"] == "1"
    if dialect == "openai":
        assert refused.headers["x-ratelimit-limit-requests"] == "1"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert refused.headers["x-ratelimit-reset-requests"].endswith(("s", "ms"))


def test_each_key_has_a_rate_of_its_own(live: LiveGateway) -> None:
    """Three requests of a key get in at once, and soon one does not; another key is not affected."""

    def status(key: str) -> int:
        return ask(live, "tfserving", "keyed", authorization=f"APPCODE {key}").status_code

    codes = [status("alpha-code") for _ in range(20)]
    assert codes[:3] == [200, 200, 200]
    assert 429 in codes
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
