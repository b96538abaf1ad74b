"""What the limits did, as metrics: who waits, who was refused and why, what was given up and where."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.bodies import Bodies
from gateway.connections import Connections
from gateway.limits import Limits
from gateway.pressure import Pressure


def collect(limits: Limits, bodies: Bodies, connections: Connections, pressure: Pressure) -> Iterator[Metric]:
    """The families, in the order in which they are shown."""
    yield from _services(limits)
    held = GaugeMetricFamily("tensorgate_body_bytes_held", "Bytes of large bodies in the process")
    held.add_metric([], bodies.held)
    connected = GaugeMetricFamily("tensorgate_connections", "Open HTTP connections")
    connected.add_metric([], connections.open)
    ended = CounterMetricFamily(
        "tensorgate_connections_refused", "Connections ended before they brought a request", labels=["reason"]
    )
    for reason, count in connections.refused.items():
        ended.add_metric([reason], count)
    stage = GaugeMetricFamily("tensorgate_memory_stage", "How short memory is, from 0 to 3")
    stage.add_metric([], pressure.stage)
    taken = GaugeMetricFamily("tensorgate_memory_percent", "Of the memory that the process can have, what is taken")
    taken.add_metric([], pressure.percent)
    yield from (held, connected, ended, stage, taken)


def _services(limits: Limits) -> Iterator[Metric]:
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
