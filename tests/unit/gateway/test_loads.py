"""What a service's nodes are scaled by, from what was counted."""

from typing import Any

import pytest

from gateway.config import ServiceConfig, convert
from gateway.deployments import deployments
from gateway.loads import Meter
from gateway.types import RequestSeries
from gateway.variants import Tally


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
    meter = Meter(lambda _: busy[0], lambda: counted, dict, lambda _: workers, lambda: now[0])
    first = meter.look(deployments(services))["s"].metrics
    assert first == {"concurrency": 0.5, "memory_percent": 50.0}
    counted, now[0], workers.cpu_seconds, busy[0] = series(40, 24.0), 102.0, 3.0, (2, 4)
    assert meter.look(deployments(services))["s"].metrics == pytest.approx(
        {"concurrency": 6.0, "requests_per_second": 10.0, "cpu_percent": 75.0, "latency_ms": 600.0,
         "queue_ms": 200.0, "memory_percent": 50.0}
    )  # fmt: skip


def test_variants_have_loads_of_their_own() -> None:
    """Each is measured by what it answered; of those who wait it has the part that its answers take of the time."""
    service = {"model": "old", "canary": {"model": "new", "weight": 25, "scaling": {}}}
    services = {"s": convert(service, ServiceConfig, "s")}
    now, counted = [100.0], {("s", "stable"): Tally(10, 0, 1.0), ("t", "canary"): Tally(9, 0, 9.0)}
    meter = Meter(lambda _: (6, 4), list, lambda: counted, lambda _: Workers(), lambda: now[0])
    first = meter.look(deployments(services))
    assert {name: load.metrics["concurrency"] for name, load in first.items()} == {"s": 3.75, "s/canary": 1.25}
    counted = {("s", "stable"): Tally(30, 0, 3.0), ("s", "canary"): Tally(10, 0, 8.0)}
    now[0] = 102.0
    second = meter.look(deployments(services))
    assert second["s"].metrics == pytest.approx(
        {"concurrency": 1.0, "requests_per_second": 5.0, "cpu_percent": 0.0, "latency_ms": 100.0, "queue_ms": 80.0}
    )
    assert second["s/canary"].metrics == pytest.approx(
        {"concurrency": 4.0, "requests_per_second": 2.5, "cpu_percent": 0.0, "latency_ms": 800.0, "queue_ms": 640.0}
    )


def test_a_canary_that_comes_is_not_measured_by_what_was_before_it() -> None:
    """With a canary a service is counted in another way: the first look after has no rates, the next ones do."""
    table = {"model": "old", "scaling": {}}
    before = {"s": convert(table, ServiceConfig, "s")}
    after = {"s": convert({**table, "canary": {"model": "new"}}, ServiceConfig, "s")}
    now = iter(range(100))
    meter = Meter(lambda _: (0, 0), lambda: series(50, 5.0), dict, lambda _: Workers(), lambda: float(next(now)))
    looks = [meter.look(deployments(services))["s"].metrics for services in (before, before, after, after)]
    assert ["latency_ms" in metrics for metrics in looks] == [False, True, False, True]


@pytest.mark.parametrize("table", [{"state": "stopped"}, {}])
def test_services_without_nodes_have_no_load(table: dict[str, Any]) -> None:
    """A service that does not run, or whose model has no workers, is left out."""
    services = {"s": convert(table, ServiceConfig, "s")}
    assert Meter(lambda _: (0, 0), list, dict, lambda _: None).look(deployments(services)) == {}
