"""The worker of a pooled model may end at any time, and ends with its gateway however that ends."""

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from live import LiveGateway, becomes, gateway, put_echo


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGateway]:
    """A gateway with one model in a worker, and one in its own process."""
    put_echo(tmp_path, "away", 'placement = "pool"\n')
    put_echo(tmp_path, "here")
    with gateway("--models", tmp_path) as live:
        live.wait_until("/readyz", 200)
        yield live


def worker(live: LiveGateway) -> psutil.Process:
    """The one process that the gateway has started."""
    (only,) = psutil.Process(live.process.pid).children(recursive=True)
    return only


def answers(live: LiveGateway, model: str) -> bool:
    """Whether the model does."""
    reply = httpx.post(f"{live.url}/v1/models/{model}:predict", json={"instances": [1.5]}, timeout=15)
    return bool((reply.status_code, reply.json()) == (200, {"predictions": [1.5]}))


def test_a_killed_worker_is_not_missed(live: LiveGateway) -> None:
    """The next call waits for its successor, and the other model notices nothing."""
    assert answers(live, "away")
    before = worker(live)
    before.send_signal(signal.SIGKILL)
    assert answers(live, "here")
    assert answers(live, "away")
    assert worker(live).pid != before.pid


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_is_left(live: LiveGateway, how: signal.Signals) -> None:
    """Not after an orderly end of the gateway, and not after another."""
    only = worker(live)
    live.process.send_signal(how)
    live.process.wait(15)
    assert becomes(lambda: not only.is_running() or only.status() == psutil.STATUS_ZOMBIE, 10)
