"""Elastic scaling: looks at the loads of services whose load decides, and has the fleet follow the rule."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

import msgspec

from gateway.config import ServiceConfig
from gateway.control.scaling import Decision, History, decide
from gateway.control.store import NewEvent
from gateway.fleet import Fleet
from gateway.periodic import again_and_again

LOOK_SECONDS = 1.0
KEPT = 300
"""Decisions of a service that are remembered for whoever looks."""

Note = Callable[[NewEvent], Awaitable[None]]

log = logging.getLogger("tensorgate.scaling")


class Elastic:
    """One for a control plane."""

    def __init__(
        self,
        services: Callable[[], Mapping[str, ServiceConfig]],
        fleet: Fleet,
        note: Note,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._services = services
        self._fleet = fleet
        self._note = note
        self._clock = clock
        self._histories: dict[str, History] = {}
        self.decisions: dict[str, deque[Decision]] = {}
        """The latest of each service, oldest first."""

    async def run(self, seconds: float = LOOK_SECONDS) -> None:
        """Look again and again, until cancelled."""
        await again_and_again(self.look, seconds, log, "the services' loads could not be looked at")

    async def look(self) -> None:
        """Judge every service once, and carry out what follows."""
        elastic = {
            name: one.scaling
            for name, one in self._services().items()
            if one.scaling is not None and one.state == "running"
        }
        self._histories = {name: history for name, history in self._histories.items() if name in elastic}
        self.decisions = {name: kept for name, kept in self.decisions.items() if name in elastic}
        if not elastic:
            return
        loads = await self._fleet.loads()
        for name, scaling in elastic.items():
            load = loads.get(name)
            if load is None:
                continue
            before = self._histories.get(name, History())
            decision, self._histories[name] = decide(scaling, load.wanted, load.metrics, self._clock(), before)
            self.decisions.setdefault(name, deque(maxlen=KEPT)).append(decision)
            if decision.changes:
                await self._carry_out(name, decision)

    async def _carry_out(self, name: str, decision: Decision) -> None:
        await self._fleet.scale(name, decision.target)
        text = f"{name}: {decision.nodes} -> {decision.target} nodes, {decision.want} wanted: {decision.rule}"
        log.info("%s", text)
        await self._note(NewEvent("scale", name, text, msgspec.to_builtins(decision)))
