"""Bad HTTP against a live gateway: the right refusal, and the next request is fine."""

import gzip
import socket
from collections.abc import Iterator

import httpx
import psutil
import pytest
from live import LiveGateway, gateway, put_echo

PREDICT = "/v1/models/echo:predict"
GOOD = b'{"instances": [1.5]}'


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    folder = tmp_path_factory.mktemp("models")
    put_echo(folder, "echo", "[echo.inputs.x]\nshape = [-1]\n")
    put_echo(folder, "any")
    with gateway("--models", folder) as running:
        yield running


@pytest.fixture(autouse=True)
def _still_serving(live: LiveGateway) -> Iterator[None]:
    """After each attack: alive, nothing in flight, the next good request right, memory bounded."""
    process = psutil.Process(live.process.pid)
    before = process.memory_info().rss
    yield
    assert httpx.get(f"{live.url}/healthz").status_code == 200
    assert httpx.post(f"{live.url}{PREDICT}", content=GOOD).json() == {"predictions": [1.5]}
    live.wait_for_metric("tensorgate_requests_in_flight", 0)
    assert process.memory_info().rss - before < 900 << 20


def exchange(live: LiveGateway, request: bytes, seconds: float = 5.0) -> bytes:
    """Everything the gateway answers to raw bytes, until it closes or falls silent."""
    answer = b""
    with socket.create_connection(("127.0.0.1", live.port), timeout=seconds) as connection:
        try:
            connection.sendall(request)
            while chunk := connection.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass
    return answer


def head(*lines: str, body: bytes = b"") -> bytes:
    """A POST to the predict path with those header lines."""
    return "\r\n".join([f"POST {PREDICT} HTTP/1.1", "Host: a", "Connection: close", *lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (head("Content-Length: 20", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
        (head("Content-Length: 20", "Content-Length: 21", body=GOOD), 400),
        (head("Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 400),
        (head("X: a\r\n b", "Content-Length: 0"), 400),
        (f"POST {PREDICT} HTTP/1.1\nHost: a\n\n".encode(), 400),
        (head("Content-Length: -1"), 400),
        (head("Content-Length: ten"), 400),
        (head("Content-Length: 9223372036854775808"), 413),
        (head("Content-Length: 99999999999999999999999"), 400),
        (head("A: " + "x" * 70_000), 431),
        (head(*["A: b"] * 201), 431),
        (b"INVENTED / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ],
)
def test_malformed_http_is_refused_and_the_connection_closed(
    live: LiveGateway, request_bytes: bytes, status: int
) -> None:
    """No ambiguous framing is guessed at, and a head has a bound."""
    answer = exchange(live, request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"connection: close" in answer.lower()
    assert b"Traceback" not in answer


def test_a_head_without_end_is_cut_off(live: LiveGateway) -> None:
    """A header line that never ends cannot fill the memory."""
    answer = exchange(live, head()[:-2] + b"A: " + b"x" * 5_000_000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


def test_a_declared_100_mb_body_is_refused_before_it_is_read(live: LiveGateway) -> None:
    """413 in the caller's dialect, readable although the client sends on."""
    answer = httpx.post(f"{live.url}{PREDICT}", content=b"[" * 100_000_000, timeout=30)
    assert answer.status_code == 413
    assert "67108864" in answer.json()["error"]


def test_expect_100_continue_is_answered_by_413_alone(live: LiveGateway) -> None:
    """A client that asks first is told before it sends anything."""
    answer = exchange(live, head("Content-Length: 100000000", "Expect: 100-continue"))
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:100]
    assert exchange(live, head("Content-Length: 20", "Expect: 100-continue", body=GOOD)).startswith(b"HTTP/1.1 100 ")


def test_a_chunked_body_is_refused_once_it_passes_the_limit(live: LiveGateway) -> None:
    """An undeclared length is counted while it comes."""
    chunk = b"100000\r\n" + b"[" * 0x100000 + b"\r\n"
    answer = exchange(live, head("Transfer-Encoding: chunked", body=chunk * 70))
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:100]


def test_a_flood_of_one_byte_chunks_is_bounded(live: LiveGateway) -> None:
    """70,000 chunks of a byte are either joined or refused, within bounded memory."""
    answer = exchange(live, head("Transfer-Encoding: chunked", body=b"1\r\n \r\n" * 70_000 + b"0\r\n\r\n"), 20)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), answer[:100]


def test_a_gzip_bomb_is_refused(live: LiveGateway) -> None:
    """1 GB in 1 MB: stopped at the limit on decompressed bytes."""
    bomb = gzip.compress(bytes(1 << 20), 9)
    answer = httpx.post(f"{live.url}{PREDICT}", content=bomb * 1000, headers={"Content-Encoding": "gzip"}, timeout=30)
    assert answer.status_code == 413
    assert "decompressed" in answer.json()["error"]


def test_json_nested_250000_deep_is_refused(live: LiveGateway) -> None:
    """Nothing recurses; the answer is a 400 in the protocol's form."""
    for body in (b'{"instances":' + b"[" * 250_000, b'{"instances":' + b"[" * 250_000 + b"]" * 250_000 + b"}"):
        answer = httpx.post(f"{live.url}{PREDICT}", content=body, timeout=30)
        assert answer.status_code == 400
        assert answer.json()["error"]


def test_a_hundred_million_numbers_are_refused(live: LiveGateway) -> None:
    """By the element budget, before an array is built."""
    body = b'{"instances":[' + b"1," * 30_000_000 + b"1]}"
    for name in ("echo", "any"):
        answer = httpx.post(f"{live.url}/v1/models/{name}:predict", content=body, timeout=60)
        assert answer.status_code == 413, answer.text[:200]
        assert "16777216" in answer.json()["error"]
    compressed = gzip.compress(b'{"instances":[' + b"1," * 100_000_000 + b"1]}", 1)
    headers = {"Content-Encoding": "gzip"}
    answer = httpx.post(f"{live.url}{PREDICT}", content=compressed, headers=headers, timeout=60)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fetc%2fpasswd", "%2e%2e%2fecho", "..", ".", "echo%00", "echo%0a", "%252e%252e", "echo;..",
        "x" * 10_000, "%D0%B5cho", "%FF%FE", "echo%2F1", "%20echo", "echo%20", "~", "C%3A%5C", "%",
    ],
)  # fmt: skip
def test_a_name_is_never_a_path(live: LiveGateway, name: str) -> None:
    """Traversal, look-alikes, control characters and oversized names are unknown models, nothing more."""
    answer = exchange(live, f"POST /v1/models/{name}:predict HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                            f"Content-Length: {len(GOOD)}\r\n\r\n".encode() + GOOD)  # fmt: skip
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")), answer[:200]
    assert b"passwd" not in answer or b"..%2f" in answer or b"../" in answer
    assert b"/tmp" not in answer


def test_an_offer_to_upgrade_is_ignored_and_the_body_kept(live: LiveGateway) -> None:
    """Java's HttpClient offers h2c with its first request; the request is answered all the same."""
    offer = ["Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk"]
    start = "\r\n".join([f"POST {PREDICT} HTTP/1.1", "Host: a", *offer, ""]).encode()
    whole = start + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD
    chunked = start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD)
    for request in (whole, chunked):
        answer = exchange(live, request, 2)
        assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]
        assert b'{"predictions":[1.5]}' in answer


def test_pipelined_requests_are_answered_in_order(live: LiveGateway) -> None:
    """Two requests in one packet get two answers."""
    one = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: 18\r\n\r\n".encode() + b'{"instances": [1]}'
    two = head("Content-Length: 18", body=b'{"instances": [2]}')
    answer = exchange(live, one + two)
    assert answer.index(b"[1.0]") < answer.index(b"[2.0]")


def test_http_1_0_is_served(live: LiveGateway) -> None:
    """An old client gets its answer and the end of the connection."""
    answer = exchange(live, f"POST {PREDICT} HTTP/1.0\r\nContent-Length: 20\r\n\r\n".encode() + GOOD)
    assert b" 200 OK" in answer
    assert b'{"predictions":[1.5]}' in answer


def test_a_client_that_hangs_up_leaves_nothing_behind(live: LiveGateway) -> None:
    """Half a body, then gone: counted as 499, nothing stays in flight."""
    before = live.metric("tensorgate_requests_total", code="499")
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        connection.sendall(head("Content-Length: 1000", body=b"{"))
    live.wait_for_metric("tensorgate_requests_total", before + 1, code="499")


def test_made_up_names_never_become_labels(live: LiveGateway) -> None:
    """The metrics page does not grow with the names that clients invent."""
    with httpx.Client(base_url=live.url) as client:
        for number in range(50):
            client.post(f"/v1/models/invented-{number}:predict", content=GOOD)
        assert "invented" not in client.get("/metrics").text
