"""SIGTERM: what is in flight finishes, new work is sent elsewhere, the exit code is 0."""

import signal
import socket
import threading
import time
from pathlib import Path

import httpx
from live import gateway, put_echo

BODY = b'{"instances": [1.5]}'


def folder(tmp_path: Path, delay_ms: float) -> Path:
    """A models folder with one echo that takes its time."""
    put_echo(tmp_path, "slow", f"[echo]\ndelay_ms = {delay_ms}\n")
    return tmp_path


def test_sigterm_under_load_loses_no_request(tmp_path: Path) -> None:
    """Every request that was taken is answered 200; afterwards connections are refused, and the code is 0."""
    answers: list[int | str] = []

    def load(url: str) -> None:
        with httpx.Client(base_url=url, timeout=20) as client:
            while True:
                try:
                    answers.append(client.post("/v1/models/slow:predict", content=BODY).status_code)
                except httpx.ConnectError:
                    return
                except httpx.HTTPError as error:
                    answers.append(repr(error))
                    return

    with gateway("--models", folder(tmp_path, 20)) as live:
        threads = [threading.Thread(target=load, args=(live.url,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        live.wait_until("/readyz", 200)
        time.sleep(0.5)
        live.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(30)
        code = live.process.wait(30)
    assert code == 0
    assert len(answers) > 50
    assert set(answers) == {200}


def test_a_long_request_finishes_and_readiness_goes_first(tmp_path: Path) -> None:
    """A request of a second survives a SIGTERM in its midst, while /readyz already says 503."""
    result: list[httpx.Response] = []
    with gateway("--models", folder(tmp_path, 1500)) as live:
        url = f"{live.url}/v1/models/slow:predict"
        thread = threading.Thread(target=lambda: result.append(httpx.post(url, content=BODY, timeout=20)))
        thread.start()
        live.wait_for_metric("tensorgate_requests_in_flight", 1)
        live.process.send_signal(signal.SIGTERM)
        draining = live.wait_until("/readyz", 503)
        assert draining.text == "draining\n"
        # Nor does any protocol's own question for readiness send new work here.
        assert httpx.get(f"{live.url}/v2/health/ready").status_code == 400
        assert httpx.get(f"{live.url}/ping").status_code == 503
        thread.join(30)
        assert live.process.wait(30) == 0
    assert result[0].json() == {"predictions": [1.5]}
    assert result[0].headers["connection"] == "close"


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    """Whoever insists need not wait for the slowest request."""
    address = folder(tmp_path, 60_000)
    with gateway("--models", address) as live, socket.create_connection(("127.0.0.1", live.port)) as connection:
        head = f"POST /v1/models/slow:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n"
        connection.sendall(head.encode() + BODY)
        live.wait_for_metric("tensorgate_requests_in_flight", 1)
        live.process.send_signal(signal.SIGTERM)
        live.wait_until("/readyz", 503)
        live.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert live.process.wait(30) == 0
        assert time.monotonic() - started < 6


def test_ctrl_c_is_a_clean_end(tmp_path: Path) -> None:
    """SIGINT drains as SIGTERM does and prints no traceback."""
    with gateway("--models", folder(tmp_path, 0)) as live:
        live.process.send_signal(signal.SIGINT)
        assert live.process.wait(30) == 0
        assert "Traceback" not in live.errors()


def test_who_takes_too_long_is_told_so(tmp_path: Path) -> None:
    """What is not done when the drain is over is answered in the caller's dialect, not with a bare 500."""
    models, result = folder(tmp_path / "models", 60_000), []
    settings = tmp_path / "gateway.toml"
    settings.write_text("[gateway]\ndrain_seconds = 1\n")
    with gateway(settings, "--models", models) as live:
        url = f"{live.url}/v1/models/slow:predict"
        thread = threading.Thread(target=lambda: result.append(httpx.post(url, content=BODY, timeout=20)))
        thread.start()
        live.wait_for_metric("tensorgate_requests_in_flight", 1)
        live.process.send_signal(signal.SIGTERM)
        thread.join(30)
        assert live.process.wait(30) == 0
        assert "Traceback" not in live.errors()
    assert result[0].status_code == 503
    assert "the gateway is leaving" in result[0].json()["error"]
    assert result[0].headers["retry-after"] == "1"
