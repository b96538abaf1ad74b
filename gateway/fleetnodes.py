"""The nodes of services where many processes answer: all of their workers are in one process, led from here."""

import asyncio
from collections.abc import Iterable, Mapping

from gateway import orders
from gateway.channel import ChannelClosed
from gateway.config import ServiceConfig
from gateway.loads import Load
from gateway.needs import Need
from gateway.nodes import Nodes
from gateway.orders import Demand, Demands, NodesTold
from gateway.poolkeeper import PoolKeeper
from gateway.slot import Member
from gateway.types import RequestSeries
from gateway.variants import Tallies

REPORT_SECONDS = 2.0
"""How long a process may take to say what is asked of its services."""

NOTHING = Demand("", 0, 0, 0, 0.0)


class FleetNodes:
    """Keeps them as the services ask, or as the load does, which is added up over the processes."""

    def __init__(self, keeper: PoolKeeper) -> None:
        self._keeper = keeper
        self._demands: dict[Member, dict[str, Demand]] = {}
        """What each process told last."""
        self._ended: dict[str, Demand] = {}
        """What those had answered that have ended."""
        self._tallies: Tallies = {}
        self._standing: Mapping[str, NodesTold] = {}
        self._nodes = Nodes(self, self._busy, self._series, lambda: self._tallies)

    def adopt(self, services: Mapping[str, ServiceConfig]) -> None:
        """Give these what they ask for from now on. Raises ConfigError for what cannot be had together."""
        self._nodes.check(services)
        self._nodes.adopt(services)

    def scale(self, deployment: str, nodes: int) -> None:
        """So many for that deployment from now on."""
        self._nodes.scale(deployment, nodes)

    async def loads(self, members: Iterable[Member], tallies: Tallies) -> Mapping[str, Load]:
        """How much the deployments have to do whose load decides."""
        members = list(members)
        told = await asyncio.gather(*map(_demands, members))
        for member in self._demands.keys() - set(members):
            for name, demand in self._demands.pop(member).items():
                self._ended[name] = _added(self._ended.get(name, NOTHING), demand, still=False)
        self._demands |= {member: one for member, one in zip(members, told, strict=True) if one is not None}
        self._tallies = tallies
        self._standing = await self._keeper.standing()
        return self._nodes.loads()

    # For its rule...

    def follow(self, asked: Mapping[str, Need]) -> None:
        """Have the models' workers be as many as is asked."""
        self._keeper.want({model: need.nodes for model, need in asked.items() if need.nodes > 1 or need.scales})

    def of(self, model: str) -> NodesTold | None:
        """How the nodes of the model stand."""
        return self._standing.get(model)

    def _busy(self, service: str) -> tuple[int, int]:
        found = self._of_all().get(service, NOTHING)
        return found.running, found.waiting

    def _series(self) -> Iterable[RequestSeries]:
        for name, one in self._of_all().items():
            yield RequestSeries("", name, "", 0, one.requests, one.seconds, (), ())

    def _of_all(self) -> dict[str, Demand]:
        found = dict(self._ended)
        for demands in self._demands.values():
            for name, demand in demands.items():
                found[name] = _added(found.get(name, NOTHING), demand)
        return found


async def _demands(member: Member) -> dict[str, Demand] | None:
    try:
        told = await member.ask(orders.AskDemands(), Demands, REPORT_SECONDS)
    except (ChannelClosed, TimeoutError):
        return None
    return {one.service: one for one in told.services}


def _added(one: Demand, other: Demand, still: bool = True) -> Demand:
    """Both together; without what runs and waits in the other unless it is still there."""
    return Demand(
        other.service,
        one.running + other.running * still,
        one.waiting + other.waiting * still,
        one.requests + other.requests,
        one.seconds + other.seconds,
    )
