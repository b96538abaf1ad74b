"""Many processes grant together what a limit says, over one connection or many, to a service or to a key."""

import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from live import LiveGateway, becomes, gateway, put_echo

WORKERS = 3
RATE = 30
CONFIG = f"""
models_dir = "models"
[gateway]
workers = {WORKERS}
access_log = "off"
[services.rated]
model = "echo"
limits = {{ requests_per_second = {RATE} }}
[services.keyed]
model = "echo"
app_auth = true
app_codes = ["alpha-code", "beta-code"]
limits = {{ key = {{ requests_per_second = {RATE} }} }}
[services.narrow]
model = "slow"
limits = {{ concurrency = 6, queue = 0 }}
"""
BODY = {"instances": [1.0]}
SECONDS = 3.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    folder = tmp_path_factory.mktemp("shared")
    put_echo(folder / "models", "echo")
    put_echo(folder / "models", "slow", "[echo]\ndelay_ms = 300\n")
    (folder / "gateway.toml").write_text(CONFIG)
    with gateway(folder / "gateway.toml") as running:
        yield running


def granted(live: LiveGateway, service: str, connections: int, pause: float, key: str = "") -> Counter[int]:
    """What so many callers are answered, each on a connection of its own; the statuses."""
    statuses: Counter[int] = Counter()
    headers = {"Authorization": f"APPCODE {key}"} if key else {}
    until = time.monotonic() + SECONDS

    def call() -> None:
        with httpx.Client(base_url=live.url, headers=headers, timeout=20) as client:
            while time.monotonic() < until:
                statuses[client.post(f"/v1/models/{service}:predict", json=BODY).status_code] += 1
                time.sleep(pause)

    callers = [threading.Thread(target=call) for _ in range(connections)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return statuses


@pytest.mark.parametrize(("service", "key"), [("rated", ""), ("keyed", "alpha-code"), ("keyed", "beta-code")])
@pytest.mark.parametrize("connections", [1, 9])
def test_a_rate_holds_for_all_together(live: LiveGateway, service: str, key: str, connections: int) -> None:
    """At most what the seconds bring, a second's burst, and one request for each process; nearly all of it is had."""
    most = RATE * SECONDS + RATE + WORKERS
    statuses = granted(live, service, connections, pause=0.005, key=key)
    assert {200, 429} == statuses.keys()
    assert RATE * SECONDS * 0.6 <= statuses[200] <= most * 1.1


def test_places_hold_for_all_together(live: LiveGateway) -> None:
    """No more run at the same time than one place for each process beyond the limit."""
    most, over = 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, int(live.metric("tensorgate_requests_running", service="narrow")))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        statuses = granted(live, "narrow", 24, pause=0.02)
    finally:
        over.set()
        looking.join()
    assert statuses[200] > 0
    assert {200, 503} >= statuses.keys() - {429}
    assert 4 <= most <= 6 + WORKERS
    assert becomes(lambda: live.metric("tensorgate_requests_running", service="narrow") == 0, 5.0)
