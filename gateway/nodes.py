"""The nodes of services in this process: as many as each says, or as its load asks for."""

from collections.abc import Callable, Iterable, Mapping

from gateway.config import ServiceConfig
from gateway.interfaces import Scalable
from gateway.loads import Load, Meter
from gateway.models import Models
from gateway.needs import needs, scalable
from gateway.types import RequestSeries


class Nodes:
    """Keeps the models' workers as the services ask."""

    def __init__(
        self,
        models: Models,
        busy: Callable[[str], tuple[int, int]],
        series: Callable[[], Iterable[RequestSeries]],
    ) -> None:
        self._models = models
        self._services: Mapping[str, ServiceConfig] = {}
        self._by_load: dict[str, int] = {}
        """Nodes of the services whose load decides."""
        self._meter = Meter(busy, series, self._of)

    def check(self, services: Mapping[str, ServiceConfig]) -> None:
        """Raise ConfigError for services that ask for what cannot be had together."""
        needs(services, self._by_load)

    def adopt(self, services: Mapping[str, ServiceConfig]) -> None:
        """Give these what they ask for from now on."""
        self._services = services
        self._by_load = {
            name: min(max(self._by_load.get(name, max(1, one.scaling.min)), one.scaling.min), one.scaling.max)
            for name, one in services.items()
            if one.scaling is not None and one.state == "running"
        }
        self._follow()

    def scale(self, service: str, nodes: int) -> None:
        """So many for that service from now on."""
        if service in self._by_load:
            self._by_load[service] = nodes
            self._follow()

    def loads(self) -> dict[str, Load]:
        """How much the services have to do whose load decides."""
        elastic = {name: one for name, one in self._services.items() if name in self._by_load}
        return {
            name: Load(load.ready, self._by_load[name], load.metrics)
            for name, load in self._meter.look(elastic).items()
        }

    def _follow(self) -> None:
        asked = needs(self._services, self._by_load)
        self._models.needs = asked
        self._models.follow()
        for name, need in asked.items():
            if need.nodes > 1 or need.scales:
                for scaled in self._scalable(name):
                    if scaled.nodes[1] != need.nodes:
                        scaled.scale(need.nodes)

    def _scalable(self, model: str) -> list[Scalable]:
        known = self._models.get(model)
        found = [scalable(loaded.backend) for loaded in known.versions.values()] if known else []
        return [one for one in found if one is not None]

    def _of(self, name: str, service: ServiceConfig) -> Scalable | None:
        known = self._models.get(service.model or name)
        return scalable(known.latest.backend) if known and known.latest else None
