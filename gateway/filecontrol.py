"""What leads a gateway without a control plane: its file, read again on SIGHUP, and the analysis of its canaries."""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from gateway.analyst import Analyst
from gateway.config import Config, ConfigError, ServiceConfig
from gateway.fleet import Fleet
from gateway.rollout import Decision, carried_out

log = logging.getLogger("tensorgate.server")

Read = Callable[[], Config]
"""Reads the file; raises ConfigError."""


class FileControl:
    """Applies the file's services, and what is decided of their canaries, one change after the other."""

    def __init__(self, fleet: Fleet, config: Config, read: Read | None = None) -> None:
        self._fleet = fleet
        self._config = config
        self._read = read
        self.services: Mapping[str, ServiceConfig] = config.services
        """As they are served."""
        self._changing = asyncio.Lock()
        self._signalled = asyncio.Event()

    async def run(self) -> None:
        """Watch the canaries, and read the file again on SIGHUP, until cancelled."""
        loop = asyncio.get_running_loop()
        if self._read is not None:
            loop.add_signal_handler(signal.SIGHUP, self.signalled)
        analyst = Analyst(lambda: self.services, self._fleet.variants, self.carry_out)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(analyst.run())
            tasks.create_task(self._follow())

    def signalled(self) -> None:
        """The file has changed; signals that come while it is being read are one more."""
        self._signalled.set()

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

    async def reload(self) -> None:
        """Read the file and serve what it says, or log why not."""
        assert self._read is not None
        try:
            found = await asyncio.to_thread(self._read)
            await self.adopt(found.services)
        except ConfigError as error:
            log.error("the services stay as they are: %s", error)
            return
        except Exception:
            log.exception("the services stay as they are")
            return
        log.info("%d services are read from the file again", len(found.services))
        if replace(found, services={}) != replace(self._config, services={}):
            log.warning("the file has changed in more than its services; that holds from the next start on")

    async def _follow(self) -> None:
        while True:
            await self._signalled.wait()
            self._signalled.clear()
            await self.reload()

    async def _apply(self, services: Mapping[str, ServiceConfig]) -> None:
        await self._fleet.apply(services)
        self.services = services
