"""Whether the servers behind a model answer: asked at load, and again while none does, so that it comes back alone."""

import asyncio
from contextlib import suppress
from time import monotonic

from backends.remote.client import Client
from gateway.errors import LoadFailed
from gateway.interfaces import BackendStatus

PROVIDER = "remote"
_LOOK_SECONDS = 1.0


class Watch:
    """Asks `path` of the servers; an answer up to `most_status` is a good one."""

    def __init__(self, client: Client, path: str, most_status: int) -> None:
        self._client, self._path, self._most_status = client, path, most_status
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> BackendStatus:
        """How many do not answer; not ready if none does."""
        count, down = len(self._client.servers.all), self._client.servers.down
        note = f"{down} of {count} servers behind it {'does' if count == 1 else 'do'} not answer" if down else ""
        return BackendStatus(PROVIDER, note, ready=down < count)

    async def start(self, seconds: float, *, required: bool) -> None:
        """Wait that long for a server. Raises LoadFailed if one is required and none has answered."""
        end, wait = monotonic() + seconds, 0.1
        while not await self.look():
            if monotonic() + wait > end:
                if required:
                    raise LoadFailed(f"no server behind it has answered within {seconds:g} s")
                for server in self._client.servers.all:
                    self._client.servers.eject(server)
                break
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LOOK_SECONDS)
        self._task = asyncio.create_task(self._look_while_down())

    async def look(self) -> bool:
        """Whether any server answers."""
        return await self._client.probe(self._path, self._most_status)

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _look_while_down(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self.status.ready:
                await self.look()
