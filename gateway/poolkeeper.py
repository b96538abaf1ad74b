"""The supervisor's side of the process that has all workers: begun by the first who connects to it, and kept."""

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from msgspec import Struct

from gateway import orders
from gateway.channel import ChannelClosed
from gateway.config import ConfigError
from gateway.orders import NodesTold, Standings
from gateway.slot import LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS, STEADY_SECONDS, Member, ending, launch

BEGIN_SECONDS = 60.0
"""How long it may take until it obeys."""
TELL_SECONDS = 2.0
"""How long it may take to say how it stands."""
LEAVE_SECONDS = 5.0
"""Then it is ended."""
MOST_TRIES = 3
"""How often it may end before it has ever obeyed."""
PLACES = (None, "/tmp", "/dev/shm")
"""Where the socket's folder may lie: where TMPDIR says, or where something can often be written that is no disk."""
WAITING = 1024
"""Connections that the kernel keeps while there is no such process."""

log = logging.getLogger("tensorgate.processes")


class PoolKeeper:
    """One process at most, and its socket, which outlives it."""

    def __init__(self, hang_seconds: Callable[[], float]) -> None:
        self._hang_seconds = hang_seconds
        self._folder = ""
        self._sock: socket.socket | None = None
        self._wanted: Mapping[str, int] = {}
        self._member: Member | None = None
        self._telling: set[asyncio.Task[bool]] = set()
        self._leaving = False
        self.restarts = 0

    @property
    def address(self) -> Path:
        """Where front processes connect."""
        return Path(self._folder) / "pools"

    def open(self) -> None:
        """Make the socket, in a folder that nobody else may look into. Raises ConfigError if there can be none."""
        problem: OSError | None = None
        for place in PLACES:
            try:
                self._folder = tempfile.mkdtemp(prefix="tensorgate-", dir=place)
            except OSError as error:
                problem = error
                continue
            try:
                self._sock = _listening(self.address)
            except OSError as error:  # a name may be too long for a socket
                problem = error
                os.rmdir(self._folder)
            else:
                return
        reason = problem.strerror if problem is not None and problem.strerror else str(problem)
        raise ConfigError(f"gateway.workers: more than one needs a folder for temporary files (TMPDIR): {reason}")

    def close(self) -> None:
        """End the process, and take the socket away."""
        if self._member is not None:
            self._member.kill()
        if self._sock is not None:
            self._sock.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    async def run(self) -> None:
        """Have the process whenever somebody waits for it. Raises ConfigError if it never gets to its work."""
        assert self._sock is not None
        failures, obeyed = 0, False
        while True:
            await _readable(self._sock)
            since = monotonic()
            served, code = await self._serve(self._sock)
            obeyed = obeyed or served
            if self._leaving:
                return
            failures = 1 if monotonic() - since > STEADY_SECONDS else failures + 1
            if not obeyed and failures >= MOST_TRIES:
                raise ConfigError(f"the process for the models' workers ended {failures} times, {ending(code)}")
            self.restarts += 1
            log.error("the process with the models' workers ended %s; another one takes its place", ending(code))
            await asyncio.sleep(min(MOST_PAUSE_SECONDS, LEAST_PAUSE_SECONDS * 2.0 ** (failures - 1)))

    async def leave(self) -> None:
        """Have it end: nobody has anything to ask any more."""
        self._leaving = True
        member = self._member
        if member is None or member.watching is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await member.leave()
                await asyncio.wait([member.watching])
        member.kill()

    def want(self, nodes: Mapping[str, int]) -> None:
        """So many nodes of each of these models from now on."""
        if nodes == self._wanted:
            return
        self._wanted = nodes
        if self._member is not None:
            task = asyncio.create_task(self._member.tell(orders.SetNodes(dict(nodes))))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def standing(self) -> dict[str, NodesTold]:
        """By model, how its nodes stand; nothing while there is no such process."""
        if self._member is None:
            return {}
        try:
            return (await self._member.ask(orders.AskNodes(), Standings, TELL_SECONDS)).models
        except (ChannelClosed, TimeoutError):
            return {}

    async def _serve(self, sock: socket.socket) -> tuple[bool, int]:
        """One process, from its start to its end: whether it ever obeyed, and its exit code."""
        member = self._member = await launch("gateway.pools", sock, _refuse)
        member.watching = watching = asyncio.create_task(member.ended(self._hang_seconds()))
        served = False
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                served = await member.tell(orders.SetNodes(dict(self._wanted)))
            return served, await asyncio.shield(watching)
        except TimeoutError:
            member.kill()
            return False, await watching
        finally:
            self._member = None
            member.kill()


def _listening(address: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.bind(str(address))
        sock.listen(WAITING)
    except BaseException:
        sock.close()
        raise
    return sock


async def _refuse(member: Member, wish: orders.Wishes) -> Struct:
    """It asks nothing."""
    raise TypeError(type(wish).__name__)


async def _readable(sock: socket.socket) -> None:
    """Wait until somebody connects."""
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sock, called.set)
    try:
        await called.wait()
    finally:
        loop.remove_reader(sock)
