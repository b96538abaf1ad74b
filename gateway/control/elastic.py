"""Elastic scaling: looks at the loads of services whose load decides, and has the fleet follow the rule."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

import msgspec

from gateway.config import ServiceConfig
from gateway.control.scaling import Decision, History, decide
from gateway.control.store import NewEvent
from gateway.deployments import Deployment, deployments
from gateway.fleet import Fleet
from gateway.periodic import again_and_again

LOOK_SECONDS = 1.0
KEPT = 300
"""Decisions of a deployment that are remembered for whoever looks."""

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
        self._histories: dict[tuple[str, str], History] = {}
        """By service and model, so that a canary that takes over brings its own along."""
        self.decisions: dict[str, deque[Decision]] = {}
        """The latest of each deployment, oldest first."""

    async def run(self, seconds: float = LOOK_SECONDS) -> None:
        """Look again and again, until cancelled."""
        await again_and_again(self.look, seconds, log, "the services' loads could not be looked at")

    async def look(self) -> None:
        """Judge every deployment once, and carry out what follows."""
        elastic = {one.name: one for one in deployments(self._services()) if one.scaling is not None}
        known = {(one.service, one.model) for one in elastic.values()}
        self._histories = {key: history for key, history in self._histories.items() if key in known}
        self.decisions = {name: kept for name, kept in self.decisions.items() if name in elastic}
        if not elastic:
            return
        loads = await self._fleet.loads()
        for name, one in elastic.items():
            load = loads.get(name)
            if load is None or one.scaling is None:
                continue
            key = (one.service, one.model)
            before = self._histories.get(key, History())
            decision, self._histories[key] = decide(one.scaling, load.wanted, load.metrics, self._clock(), before)
            self.decisions.setdefault(name, deque(maxlen=KEPT)).append(decision)
            if decision.changes:
                await self._carry_out(one, decision)

    async def _carry_out(self, deployment: Deployment, decision: Decision) -> None:
        await self._fleet.scale(deployment.name, decision.target)
        text = (
            f"{deployment.name}: {decision.nodes} -> {decision.target} nodes, {decision.want} wanted: {decision.rule}"
        )
        log.info("%s", text)
        await self._note(NewEvent("scale", deployment.service, text, msgspec.to_builtins(decision)))
