"""The configuration file, read again on SIGHUP."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from gateway.config import Config, ConfigError, ServiceConfig

log = logging.getLogger("tensorgate.server")

Read = Callable[[], Config]
"""Reads the file; raises ConfigError."""
Adopt = Callable[[Mapping[str, ServiceConfig]], Awaitable[None]]
"""Has the file's services served; raises ConfigError, and then nothing has changed."""


class Rereading:
    """Has the file's services adopted whenever it is told to, one reading after the other."""

    def __init__(self, read: Read, adopt: Adopt, began: Config) -> None:
        self._read = read
        self._adopt = adopt
        self._began = began
        self._signalled = asyncio.Event()

    async def run(self) -> None:
        """Read the file again on SIGHUP, until cancelled."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.signalled)
        while True:
            await self._signalled.wait()
            self._signalled.clear()
            await self.reload()

    def signalled(self) -> None:
        """The file has changed; signals that come while it is being read are one more."""
        self._signalled.set()

    async def reload(self) -> None:
        """Read the file and have what it says served, or log why not."""
        try:
            found = await asyncio.to_thread(self._read)
            await self._adopt(found.services)
        except ConfigError as error:
            log.error("the services stay as they are: %s", error)
            return
        except Exception:
            log.exception("the services stay as they are")
            return
        log.info("%d services are read from the file again", len(found.services))
        if replace(found, services={}) != replace(self._began, services={}):
            log.warning("the file has changed in more than its services; that holds from the next start on")
