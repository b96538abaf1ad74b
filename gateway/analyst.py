"""Watches the canaries that are to be analysed, and passes on what the rule decides."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

from gateway.config import AnalysisConfig, CanaryConfig, ServiceConfig
from gateway.periodic import again_and_again
from gateway.rollout import CHANGES, Decision, Window, decide
from gateway.variants import Tallies, Tally

LOOK_SECONDS = 1.0

Publish = Callable[[str, Decision], Awaitable[None]]
"""Carries out what was decided of a service, and tells of it."""

_NONE = Tally()

log = logging.getLogger("tensorgate.canary")


class _Watch:
    """One canary at one weight."""

    def __init__(self, canary: CanaryConfig, now: float, tallies: tuple[Tally, Tally]) -> None:
        self.canary = canary
        self.bad = 0
        self.begin(now, tallies)

    def begin(self, now: float, tallies: tuple[Tally, Tally]) -> None:
        """A new window."""
        self.since = now
        self._before = tallies

    def window(self, now: float, tallies: tuple[Tally, Tally]) -> Window:
        """What has come since then."""
        stable, canary = (after.since(before) for after, before in zip(tallies, self._before, strict=True))
        return Window(now - self.since, stable, canary)


class Analyst:
    """One for a gateway, in whatever process its configuration is decided."""

    def __init__(
        self,
        services: Callable[[], Mapping[str, ServiceConfig]],
        tallies: Callable[[], Awaitable[Tallies]],
        publish: Publish,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._services = services
        self._tallies = tallies
        self._publish = publish
        self._clock = clock
        self._watches: dict[str, _Watch] = {}

    async def run(self, seconds: float = LOOK_SECONDS) -> None:
        """Look again and again, until cancelled."""
        await again_and_again(self.look, seconds, log, "the canaries could not be analysed")

    async def look(self) -> None:
        """Judge every canary once; a change of its own that was made meanwhile begins a new window."""
        analysed = {
            name: service.canary
            for name, service in self._services().items()
            if service.state == "running" and service.canary and service.canary.analysis and not service.canary.halted
        }
        self._watches = {name: watch for name, watch in self._watches.items() if name in analysed}
        if not analysed:
            return
        tallies = await self._tallies()
        for name, canary in analysed.items():
            assert canary.analysis is not None
            await self._judge(name, canary, canary.analysis, tallies)

    async def _judge(self, name: str, canary: CanaryConfig, analysis: AnalysisConfig, tallies: Tallies) -> None:
        now = self._clock()
        counted = (tallies.get((name, "stable"), _NONE), tallies.get((name, "canary"), _NONE))
        watch = self._watches.get(name)
        if watch is None or watch.canary != canary:
            watch = self._watches[name] = _Watch(canary, now, counted)
        decision = decide(analysis, canary.weight, watch.bad, watch.window(now, counted))
        if decision.action == "wait":
            return
        watch.bad = watch.bad + 1 if decision.action == "bear" else 0
        watch.begin(now, counted)
        if decision.action in CHANGES or decision.action == "bear":
            log.info("services.%s.canary: %s: %s", name, decision.action, decision.reason)
            await self._publish(name, decision)
