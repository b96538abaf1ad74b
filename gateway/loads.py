"""How much each deployment has to do just now: what its nodes are scaled by."""

from collections.abc import Callable, Iterable
from time import monotonic

from msgspec import Struct

from gateway.deployments import Deployment
from gateway.interfaces import Measured
from gateway.types import RequestSeries
from gateway.variants import Tallies, Tally


class Load(Struct, frozen=True):
    """One deployment's."""

    ready: int
    """Nodes that answer."""
    wanted: int
    metrics: dict[str, float]
    """Of a node on average, but for latency, which is the deployment's; what cannot be told is missing."""


class _Answered(Struct, frozen=True):
    requests: int = 0
    seconds: float = 0.0
    others_seconds: float = 0.0
    """Of the service's other variant."""

    def since(self, before: "_Answered") -> "_Answered":
        return _Answered(
            self.requests - before.requests,
            self.seconds - before.seconds,
            self.others_seconds - before.others_seconds,
        )


class _Look(Struct, frozen=True):
    at: float
    answered: _Answered
    """Since the start."""
    cpu: float


class Meter:
    """Looks at the deployments again and again; rates are over the time since the look before."""

    def __init__(
        self,
        busy: Callable[[str], tuple[int, int]],
        series: Callable[[], Iterable[RequestSeries]],
        variants: Callable[[], Tallies],
        nodes: Callable[[str], Measured | None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._busy = busy
        """A service's requests that run, and that wait."""
        self._series = series
        self._variants = variants
        self._nodes = nodes
        """A model's."""
        self._clock = clock
        self._before: dict[tuple[str, str], _Look] = {}

    def look(self, deployments: Iterable[Deployment]) -> dict[str, Load]:
        """The loads of those that have nodes, by their names."""
        services: dict[str, _Answered] = {}
        for one in self._series():
            counted = services.get(one.service, _Answered())
            services[one.service] = _Answered(counted.requests + one.count, counted.seconds + one.seconds)
        variants = self._variants()
        before, self._before = self._before, {}
        found: dict[str, Load] = {}
        for deployment in deployments:
            scaled = self._nodes(deployment.model)
            if scaled is None:
                continue
            whole = services.get(deployment.service, _Answered())
            answered = _of_variant(deployment, variants) if deployment.variant else whole
            # A service that gets a canary is counted in another way from then on, so that what was is not compared.
            key = (deployment.name, deployment.variant)
            self._before[key] = look = _Look(self._clock(), answered, scaled.cpu_seconds)
            found[deployment.name] = self._load(deployment, scaled, look, before.get(key))
        return found

    def _load(self, deployment: Deployment, scaled: Measured, look: _Look, before: _Look | None) -> Load:
        ready, wanted = scaled.nodes
        nodes = max(1, wanted)
        since = look.answered.since(before.answered) if before is not None else _Answered()
        seconds = since.seconds + since.others_seconds
        # NOTE: the service's gate does not tell its variants apart; they hold it for as long as they take.
        share = since.seconds / seconds if seconds > 0 else deployment.share
        running, waiting = (share * count for count in self._busy(deployment.service))
        metrics = {"concurrency": (running + waiting) / nodes}
        if deployment.node.memory_mib:
            metrics["memory_percent"] = 100.0 * scaled.process_bytes / (nodes * (deployment.node.memory_mib << 20))
        if before is not None and look.at > before.at:
            span, answered = look.at - before.at, since.requests
            # On average since the last look, by the time that those took who were answered: now may be a lucky moment.
            metrics["concurrency"] = max(running + waiting, since.seconds / span) / nodes
            metrics["requests_per_second"] = answered / span / nodes
            metrics["cpu_percent"] = max(0.0, 100.0 * (look.cpu - before.cpu) / span / nodes)
            metrics["latency_ms"] = 1000.0 * since.seconds / answered if answered else 0.0
            # Little's law: those who wait are as many as come in the time that one waits.
            metrics["queue_ms"] = 1000.0 * waiting * span / answered if answered else 0.0
        return Load(ready, wanted, metrics)


def _of_variant(deployment: Deployment, variants: Tallies) -> _Answered:
    own = other = Tally()
    for (service, variant), tally in variants.items():
        if service == deployment.service:
            own, other = (tally, other) if variant == deployment.variant else (own, tally)
    return _Answered(own.requests, own.seconds, other.seconds)
