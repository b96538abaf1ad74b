"""What the limits did, as metrics: who waits, who was refused and why, what was given up and where."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.limits import Limits


def collect(limits: Limits) -> Iterator[Metric]:
    """The families, in the order in which they are shown."""
    running = GaugeMetricFamily("tensorgate_requests_running", "Requests that have a place", labels=["service"])
    waiting = GaugeMetricFamily("tensorgate_requests_waiting", "Requests in line for a place", labels=["service"])
    for gate in limits.gates():
        running.add_metric([gate.service], gate.running)
        waiting.add_metric([gate.service], len(gate.waiting))
    refused = CounterMetricFamily(
        "tensorgate_requests_refused", "Requests over a limit, by which", labels=["service", "reason"]
    )
    cancelled = CounterMetricFamily(
        "tensorgate_requests_cancelled", "Requests given up before their answer", labels=["service", "stage"]
    )
    for key, count in limits.tally.refused.items():
        refused.add_metric(list(key), count)
    for key, count in limits.tally.cancelled.items():
        cancelled.add_metric(list(key), count)
    yield from (running, waiting, refused, cancelled)
