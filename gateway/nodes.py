"""The nodes of services: as many as each says, or as its load asks for."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from gateway.config import ScalingConfig, ServiceConfig
from gateway.deployments import deployments
from gateway.interfaces import Measured, Scalable
from gateway.loads import Load, Meter
from gateway.models import Models
from gateway.needs import Need, needs, scalable
from gateway.types import RequestSeries
from gateway.variants import Tallies


class Workers(Protocol):
    """The models' workers, here or in another process."""

    def follow(self, asked: Mapping[str, Need]) -> None:
        """Have what is asked of each model."""

    def of(self, model: str) -> Measured | None:
        """How the nodes of the model stand that answers now, if it has any."""


class Nodes:
    """Keeps the models' workers as the services ask."""

    def __init__(
        self,
        workers: Workers,
        busy: Callable[[str], tuple[int, int]],
        series: Callable[[], Iterable[RequestSeries]],
        variants: Callable[[], Tallies],
    ) -> None:
        self._workers = workers
        self._services: Mapping[str, ServiceConfig] = {}
        self._by_load: dict[str, int] = {}
        """Nodes of the deployments whose load decides."""
        self._meter = Meter(busy, series, variants, workers.of)

    def check(self, services: Mapping[str, ServiceConfig]) -> None:
        """Raise ConfigError for services that ask for what cannot be had together."""
        needs(services, self._by_load)

    def adopt(self, services: Mapping[str, ServiceConfig]) -> None:
        """Give these what they ask for from now on."""
        # A canary that takes over has the nodes that it had.
        before = {(one.service, one.model): self._by_load.get(one.name) for one in deployments(self._services)}
        self._services = services
        self._by_load = {
            one.name: _within(one.scaling, before.get((one.service, one.model)) or self._by_load.get(one.name))
            for one in deployments(services)
            if one.scaling is not None
        }
        self._follow()

    def scale(self, deployment: str, nodes: int) -> None:
        """So many for that deployment from now on."""
        if deployment in self._by_load:
            self._by_load[deployment] = nodes
            self._follow()

    def loads(self) -> dict[str, Load]:
        """How much the deployments have to do whose load decides."""
        elastic = [one for one in deployments(self._services) if one.name in self._by_load]
        return {
            name: Load(load.ready, self._by_load[name], load.metrics)
            for name, load in self._meter.look(elastic).items()
        }

    def _follow(self) -> None:
        self._workers.follow(needs(self._services, self._by_load))


class OwnWorkers:
    """The workers of the models in this process."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def follow(self, asked: Mapping[str, Need]) -> None:
        """Have what is asked of each model."""
        self._models.needs = asked
        self._models.follow()
        for name, need in asked.items():
            if need.nodes > 1 or need.scales:
                for scaled in self._scalable(name):
                    if scaled.nodes[1] != need.nodes:
                        scaled.scale(need.nodes)

    def of(self, model: str) -> Measured | None:
        """How the nodes of the model stand that answers now, if it has any."""
        known = self._models.get(model)
        return scalable(known.latest.backend) if known and known.latest else None

    def _scalable(self, model: str) -> list[Scalable]:
        known = self._models.get(model)
        found = [scalable(loaded.backend) for loaded in known.versions.values()] if known else []
        return [one for one in found if one is not None]


def _within(scaling: ScalingConfig, nodes: int | None) -> int:
    """As many, or what the rule begins with, between its bounds."""
    return min(max(max(1, scaling.min) if nodes is None else nodes, scaling.min), scaling.max)
