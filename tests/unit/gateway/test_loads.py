"""What a service's nodes are scaled by, from what was counted."""

from typing import Any

import pytest

from gateway.config import ServiceConfig, convert
from gateway.loads import Meter
from gateway.types import RequestSeries


class Workers:
    """Two nodes that compute."""

    def __init__(self) -> None:
        self.nodes = (2, 2)
        self.cpu_seconds = 0.0
        self.process_bytes = 100 << 20

    def scale(self, nodes: int) -> None:
        self.nodes = (nodes, nodes)


def series(count: int, seconds: float) -> list[RequestSeries]:
    return [RequestSeries("seldon", "s", "predict", 200, count, seconds, (), ())]


def test_rates_are_over_the_time_since_the_look_before() -> None:
    """Requests, computing time and latency are differences; concurrency is the larger of now and on average."""
    workers, counted, now, busy = Workers(), series(0, 0.0), [100.0], [(1, 0)]
    services = {"s": convert({"node": {"memory_mib": 100}, "scaling": {}}, ServiceConfig, "s")}
    meter = Meter(lambda _: busy[0], lambda: counted, lambda *_: workers, lambda: now[0])
    first = meter.look(services)["s"].metrics
    assert first == {"concurrency": 0.5, "memory_percent": 50.0}
    counted, now[0], workers.cpu_seconds, busy[0] = series(40, 24.0), 102.0, 3.0, (2, 4)
    assert meter.look(services)["s"].metrics == pytest.approx(
        {"concurrency": 6.0, "requests_per_second": 10.0, "cpu_percent": 75.0, "latency_ms": 600.0,
         "queue_ms": 200.0, "memory_percent": 50.0}
    )  # fmt: skip


@pytest.mark.parametrize("table", [{"state": "stopped"}, {}])
def test_services_without_nodes_have_no_load(table: dict[str, Any]) -> None:
    """A service that does not run, or whose model has no workers, is left out."""
    services = {"s": convert(table, ServiceConfig, "s")}
    assert Meter(lambda _: (0, 0), list, lambda *_: None).look(services) == {}
