"""The program of the process that has the workers of all front processes: user classes, pools and custom servers.

`python -m gateway.pools CHANNEL SOCKET`: the numbers of a socket that leads to the supervisor, and of the one to which
front processes connect. It leaves when the supervisor says so; if that has gone, once no front process is there.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys

import uvloop
from msgspec import Struct

from gateway import orders, plugins
from gateway.channel import Channel
from gateway.leases import Leases
from gateway.loading import HOSTED, fulfil_hosted
from gateway.orders import Done, Standings
from gateway.programlog import begin_log

CLOSE_SECONDS = 3.0
"""For workers and servers to end in order, when the gateway leaves."""


class Pools:
    """This process, from its first line to its last."""

    def __init__(self, channel: socket.socket, listening: socket.socket) -> None:
        self._channel: Channel[orders.PoolOrders] = Channel(channel, orders.PoolOrders, self._obey)
        self._listening = listening
        self._leases = Leases(fulfil_hosted)
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Have what is asked for until told to leave."""
        loop = asyncio.get_running_loop()
        # A service manager may signal every process: whoever is answered still needs the workers.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: None)
        module = await asyncio.to_thread(plugins.load, "backends", HOSTED, "receive")
        reception = await module.receive(self._listening, self._leases.take)
        obeying = asyncio.create_task(self._channel.run())
        ends = [asyncio.create_task(event.wait()) for event in (self._over, self._channel.closed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._over.is_set():
            await reception.emptied()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._leases.close()
        obeying.cancel()

    async def _obey(self, order: orders.PoolOrders) -> Struct:
        match order:
            case orders.SetNodes():
                self._leases.scale(order.nodes)
            case orders.AskNodes():
                return Standings(
                    {
                        model: orders.NodesTold(found.nodes, found.process_bytes, found.cpu_seconds)
                        for model, found in self._leases.standing().items()
                    }
                )
            case orders.Leave():
                self._over.set()
        return Done()


async def _run(channel: int, sock: int) -> None:
    with socket.socket(fileno=channel) as to_supervisor, socket.socket(fileno=sock) as listening:
        for one in (to_supervisor, listening):
            one.setblocking(False)
        await Pools(to_supervisor, listening).run()
        sys.stderr.flush()
        os._exit(0)  # threads of a wrapper must not keep the process


def main() -> None:
    """Serve the front processes of the supervisor that holds the other end of the channel."""
    begin_log()
    channel, sock = map(int, sys.argv[1:3])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(channel, sock))


if __name__ == "__main__":
    main()
