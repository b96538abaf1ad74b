"""What has nodes of its own: a running service's model, and its canary's where that is another one."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gateway.canary import CANARY, STABLE, Variant
from gateway.config import NodeConfig, ScalingConfig, ServiceConfig


class Deployment(Struct, frozen=True):
    """One of them."""

    service: str
    variant: Variant
    """Empty where the model answers all of the service's requests."""
    model: str
    nodes: int
    """How many it has, unless `scaling` decides."""
    scaling: ScalingConfig | None
    node: NodeConfig
    share: float
    """Of the service's requests, as long as nothing was measured."""

    @property
    def name(self) -> str:
        """What decisions call it; no service has a name like a canary's."""
        return f"{self.service}/{self.variant}" if self.variant == CANARY else self.service


def deployments(services: Mapping[str, ServiceConfig]) -> Iterator[Deployment]:
    """Those of the services that run."""
    for name, service in services.items():
        if service.state != "running":
            continue
        model, canary = service.model or name, service.canary
        if canary is None or canary.model in ("", model):
            yield Deployment(name, "", model, service.nodes, service.scaling, service.node, 1.0)
            continue
        share = canary.weight / 100
        yield Deployment(name, STABLE, model, service.nodes, service.scaling, service.node, 1.0 - share)
        yield Deployment(name, CANARY, canary.model, canary.nodes, canary.scaling, service.node, share)
