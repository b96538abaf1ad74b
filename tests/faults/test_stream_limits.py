"""A stream keeps its service's place to its end, and ends at its deadline."""

from collections.abc import Iterator

import httpx
import pytest
from live import LiveGateway, gateway, put_echo

CONFIG = """
models_dir = "models"
[services.drip.limits]
concurrency = 1
queue = 0
"""
STREAM = "/endpoints/drip/invocations-response-stream"
ROWS = b'{"instances": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}'
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    base = tmp_path_factory.mktemp("streams")
    put_echo(base / "models", "drip", "[echo]\ndelay_ms = 300\n")
    (base / "gateway.toml").write_text(CONFIG)
    with gateway(base / "gateway.toml") as running:
        yield running


def test_a_stream_keeps_its_place_and_gives_it_back(live: LiveGateway) -> None:
    """While it runs the next caller is refused; when its client leaves, the place is free within a second."""
    with httpx.stream("POST", f"{live.url}{STREAM}", content=ROWS, headers=JSON) as reply:
        assert reply.status_code == 200
        parts = reply.iter_raw()  # held: it closes the connection when it goes
        assert next(parts)
        assert live.metric("tensorgate_requests_running", service="drip") == 1
        refused = httpx.post(f"{live.url}{STREAM}", content=ROWS, headers=JSON)
        assert refused.status_code == 503
        assert "no room for more requests" in refused.json()["Message"]
    live.wait_for_metric("tensorgate_requests_running", 0, seconds=3, service="drip")
    live.wait_for_metric("tensorgate_requests_in_flight", 0, seconds=3)


def test_a_stream_ends_at_its_deadline(live: LiveGateway) -> None:
    """With an event that says so, after the parts that were in time."""
    headers = JSON | {"x-tensorgate-deadline-ms": "700"}
    with httpx.stream("POST", f"{live.url}{STREAM}", content=ROWS, headers=headers) as reply:
        events = b"".join(reply.iter_raw())
    assert reply.status_code == 200
    assert b"PayloadPart" in events
    assert b"exception" in events
    assert events.count(b"PayloadPart") < 10
    live.wait_for_metric("tensorgate_requests_running", 0, service="drip")


def test_a_deadline_before_the_first_part_has_a_status(live: LiveGateway) -> None:
    """Nothing has been sent yet, so it is an error as any other."""
    headers = JSON | {"x-tensorgate-deadline-ms": "50"}
    reply = httpx.post(f"{live.url}{STREAM}", content=ROWS, headers=headers)
    assert reply.status_code == 424
    assert reply.json()["OriginalMessage"].startswith("Your invocation timed out")
    live.wait_for_metric("tensorgate_requests_running", 0, service="drip")
