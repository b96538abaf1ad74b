"""A server process of the user's: started on a free port, waited for until ready, and started again if it ends."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
from msgspec import Struct

from backends._endings import ending
from backends._environment import kept_environment
from backends._output import Output
from gateway.errors import LoadFailed

HOST = "127.0.0.1"
POLL_SECONDS = 0.05
STEADY_SECONDS = 10.0
"""A server that has lived so long was in order."""
BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.2, 5.0
READY_BELOW = 400

_EXEC = Path(__file__).with_name("_exec.py")

log = logging.getLogger("tensorgate.servers")


class Launch(Struct, frozen=True):
    """How the server is started, and how long it may take."""

    name: str
    """For the log."""
    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    """Beside the few variables that every process of a user inherits."""
    ready_path: str
    start_seconds: float
    stop_seconds: float


class ServerProcess:
    """The process, and whoever comes after it, on one port."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._output: Output | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why it does not run just now; safe to show."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self._port}"

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises LoadFailed."""
        self._port = _free_port()
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        self._keeper = asyncio.create_task(self._keep(), name=f"server of {self._launch.name}")

    async def close(self) -> None:
        """Ask it to end, and see that it does."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._stop()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = BACKOFF_SECONDS
        while True:
            started = loop.time()
            assert self._process is not None
            code = await self._process.wait()
            await self._stop()
            if loop.time() - started > STEADY_SECONDS:
                backoff = BACKOFF_SECONDS
            self.trouble = f"the server {ending(code)} and is started again"
            log.error("%s: %s", self._launch.name, self.trouble)
            while self.trouble:
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, MOST_BACKOFF_SECONDS)
                await self._start_again()

    async def _start_again(self) -> None:
        try:
            await self._start()
        except LoadFailed as error:
            await self._stop()
            self.trouble = str(error)
            log.error("%s: %s", self._launch.name, error)
        else:
            self.trouble = ""

    async def _start(self) -> None:
        await self._spawn()
        try:
            async with asyncio.timeout(self._launch.start_seconds):
                while not await self._is_ready():  # noqa: ASYNC110 - another process tells nobody
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise LoadFailed(f"the server was not ready within {self._launch.start_seconds:g} s{self._said}") from None

    async def _spawn(self) -> None:
        output, printed = os.pipe()
        command = [part.replace("{port}", str(self._port)) for part in self._launch.command]
        if command[0] == "python":
            command[0] = sys.executable
        environment = kept_environment({**self._launch.environment, "PORT": str(self._port)})
        try:
            with os.fdopen(printed, "wb", 0) as sink:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    str(_EXEC),
                    str(os.getpid()),
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    cwd=self._launch.folder,
                    env=environment,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            os.close(output)
            reason = getattr(error, "strerror", None) or "its command line cannot be used"
            raise LoadFailed(f"the server cannot be started: {reason}") from None
        self._output = Output(self._launch.name, output)

    async def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            raise LoadFailed(f"the server {ending(self._process.returncode)} before it was ready{self._said}")
        if not self._launch.ready_path:
            return await self._takes_connections()
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=1.0) as client:
                reply = await client.get(f"{self.url}/{self._launch.ready_path.lstrip('/')}")
            return reply.status_code < READY_BELOW
        except httpx.HTTPError:
            return False

    async def _takes_connections(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self._port)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    @property
    def _said(self) -> str:
        last = self._output.last if self._output is not None else ""
        return f"; it said: {last[:256]}" if last and "/" not in last else "; the log has what it said"

    async def _stop(self) -> None:
        """End the process and whatever it has started: all of it lives in a session of its own."""
        process, self._process = self._process, None
        output, self._output = self._output, None
        if process is not None:
            self._signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self._launch.stop_seconds)
            self._signal(process.pid, signal.SIGKILL)
            await process.wait()
        if output is not None:
            output.close()

    def _signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as sock:
        return int(sock.getsockname()[1])
