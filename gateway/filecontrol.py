"""What leads a gateway without a control plane: the services of its file, and the analysis of their canaries."""

import asyncio
from collections.abc import Mapping

from gateway.analyst import Analyst
from gateway.config import Config, ServiceConfig
from gateway.fleet import Fleet
from gateway.rollout import Decision, carried_out


class FileControl:
    """Applies the file's services, and what is decided of their canaries, one change after the other."""

    def __init__(self, fleet: Fleet, config: Config) -> None:
        self._fleet = fleet
        self.services: Mapping[str, ServiceConfig] = config.services
        """As they are served."""
        self._changing = asyncio.Lock()

    async def run(self) -> None:
        """Watch the canaries, until cancelled."""
        await Analyst(lambda: self.services, self._fleet.variants, self.carry_out).run()

    async def carry_out(self, name: str, decision: Decision) -> None:
        """What was decided of a service's canary."""
        async with self._changing:
            service = self.services.get(name)
            if service is not None:
                await self._apply({**self.services, name: carried_out(service, decision)})

    async def adopt(self, services: Mapping[str, ServiceConfig]) -> None:
        """Serve these. Raises ConfigError."""
        async with self._changing:
            await self._apply(services)

    async def _apply(self, services: Mapping[str, ServiceConfig]) -> None:
        await self._fleet.apply(services)
        self.services = services
