"""A process under the supervisor, and a front process's slot: the socket that outlives it, and what leads to it."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from msgspec import Struct

from gateway import orders
from gateway.aggregate import counted
from gateway.channel import Channel, ChannelClosed
from gateway.orders import Done, Family
from gateway.variants import Tally

BEAT_SECONDS = 1.0
"""Between two looks at whether a process still answers."""
LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.1, 4.0
"""Before a process that ended unasked is replaced: the first time, and at most."""
STEADY_SECONDS = 30.0
"""A process that lived so long did not end because of how it began."""

Other = TypeVar("Other", bound=Struct)


class Member:
    """One process, seen from the supervisor."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel[orders.Wishes]) -> None:
        self._process = process
        self._channel = channel
        self._reading = asyncio.create_task(channel.run())
        self.since = monotonic()
        self.serving = False
        self.leaving = False
        self.watching: asyncio.Task[int] | None = None
        """Ends with the process."""
        self.families: tuple[Family, ...] = ()
        """As it told them last."""
        self.variants: tuple[tuple[str, str, Tally], ...] = ()
        """As it told them last."""

    async def ask(self, order: orders.Order, answer: type[Other], seconds: float | None = None) -> Other:
        """Its answer. Raises ChannelClosed once it has gone, and TimeoutError."""
        return await self._channel.ask(order, answer, seconds)

    async def tell(self, order: orders.Order) -> bool:
        """Whether it did as told; not if it has gone."""
        try:
            await self._channel.ask(order, Done)
        except ChannelClosed:
            return False
        return True

    async def leave(self, replaced: bool = False, at_once: bool = False) -> None:
        """Tell it to."""
        self.leaving = True
        await self.tell(orders.Leave(replaced, at_once))

    async def ended(self, hang_seconds: float) -> int:
        """Wait until it has ended, and see to it that it does once it does not answer any more; its exit code."""
        beating = asyncio.create_task(self._beat(hang_seconds))
        try:
            return await self._process.wait()
        finally:
            beating.cancel()
            self._reading.cancel()
            await asyncio.wait([beating, self._reading])

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    @property
    def what_counts_on(self) -> tuple[Family, ...]:
        """What it has counted, and what must not be lost with it."""
        return counted(self.families)

    async def _beat(self, hang_seconds: float) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                await self.ask(orders.Ping(), Done, hang_seconds)
            except ChannelClosed:
                return
            except TimeoutError:
                self.kill()
                return


async def launch(
    program: str, sock: socket.socket, handle: Callable[[Member, orders.Wishes], Awaitable[Struct]]
) -> Member:
    """A new process of the program on the socket, which begins with nothing; `handle` answers what it asks."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    member: list[Member] = []

    async def answer(wish: orders.Wishes) -> Struct:
        return await handle(member[0], wish)

    try:
        numbers = (theirs.fileno(), sock.fileno())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", program, *map(str, numbers)),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=numbers,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    member.append(Member(process, Channel(ours, orders.Wishes, answer)))
    return member[0]


class Slot:
    """One of the sockets on the port, and who listens on it."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.sock = sock
        self.member: Member | None = None
        self.restarts = 0
        self._failures = 0

    async def launch(self, handle: Callable[[Member, orders.Wishes], Awaitable[Struct]]) -> Member:
        """A new process on the socket, which begins with nothing; `handle` answers what it asks."""
        return await launch("gateway.front", self.sock, handle)

    def pause_after(self, member: Member | None) -> float:
        """Seconds before the next process: longer each time that one ends soon."""
        if member is not None and monotonic() - member.since > STEADY_SECONDS:
            self._failures = 0
        self._failures += 1
        return min(MOST_PAUSE_SECONDS, LEAST_PAUSE_SECONDS * 2.0 ** (self._failures - 1))


def ending(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"
