"""How much each service has to do just now: what its nodes are scaled by."""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from msgspec import Struct

from gateway.config import ServiceConfig
from gateway.interfaces import Scalable
from gateway.types import RequestSeries


class Load(Struct, frozen=True):
    """One service's."""

    ready: int
    """Nodes that answer."""
    wanted: int
    metrics: dict[str, float]
    """Of a node on average, but for latency, which is the service's; what cannot be told is missing."""


class _Before(Struct, frozen=True):
    at: float
    requests: int
    seconds: float
    cpu: float


class Meter:
    """Looks at the services again and again; rates are over the time since the look before."""

    def __init__(
        self,
        busy: Callable[[str], tuple[int, int]],
        series: Callable[[], Iterable[RequestSeries]],
        nodes: Callable[[str, ServiceConfig], Scalable | None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._busy = busy
        """A service's requests that run, and that wait."""
        self._series = series
        self._nodes = nodes
        self._clock = clock
        self._before: dict[str, _Before] = {}

    def look(self, services: Mapping[str, ServiceConfig]) -> dict[str, Load]:
        """The loads of those that have nodes."""
        counted: dict[str, tuple[int, float]] = {}
        for one in self._series():
            requests, seconds = counted.get(one.service, (0, 0.0))
            counted[one.service] = (requests + one.count, seconds + one.seconds)
        found: dict[str, Load] = {}
        for name, service in services.items():
            scaled = self._nodes(name, service) if service.state == "running" else None
            if scaled is not None:
                found[name] = self._load(name, service, scaled, *counted.get(name, (0, 0.0)))
        self._before = {name: before for name, before in self._before.items() if name in found}
        return found

    def _load(self, name: str, service: ServiceConfig, scaled: Scalable, requests: int, seconds: float) -> Load:
        now = _Before(self._clock(), requests, seconds, scaled.cpu_seconds)
        before, self._before[name] = self._before.get(name), now
        ready, wanted = scaled.nodes
        running, waiting = self._busy(name)
        share = max(1, wanted)
        metrics = {"concurrency": (running + waiting) / share}
        if service.node.memory_mib:
            metrics["memory_percent"] = 100.0 * scaled.process_bytes / (share * (service.node.memory_mib << 20))
        if before is not None and now.at > before.at:
            span, answered = now.at - before.at, now.requests - before.requests
            # On average since the last look, by the time that those took who were answered: now may be a lucky moment.
            metrics["concurrency"] = max(running + waiting, (now.seconds - before.seconds) / span) / share
            metrics["requests_per_second"] = answered / span / share
            metrics["cpu_percent"] = max(0.0, 100.0 * (now.cpu - before.cpu) / span / share)
            metrics["latency_ms"] = 1000.0 * (now.seconds - before.seconds) / answered if answered else 0.0
            # Little's law: those who wait are as many as come in the time that one waits.
            metrics["queue_ms"] = 1000.0 * waiting * span / answered if answered else 0.0
        return Load(ready, wanted, metrics)
