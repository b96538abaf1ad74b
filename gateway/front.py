"""The program of a front process: one slot's socket, served as the supervisor says.

`python -m gateway.front CHANNEL SOCKET`: the numbers of a socket that leads to the supervisor, and of the one to
listen on. It leaves when the supervisor says so, or has gone.
"""

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import sys
from collections.abc import Callable

import uvloop
from msgspec import Struct

from gateway import orders
from gateway.aggregate import families_of
from gateway.channel import Channel, ChannelClosed
from gateway.config import ConfigError
from gateway.following import FollowingModels, Stage
from gateway.needs import needs
from gateway.orders import Demand, Demands, Done, Page, Prepared, Standing
from gateway.pages import Unreachable
from gateway.parts import SLICE_SECONDS
from gateway.passes import Passes
from gateway.programlog import begin_log
from gateway.server import Assembly, Serving, settle_heap
from gateway.startup import banner

ANSWER_SECONDS = 10.0
"""How long the supervisor may take to say what a page says."""

log = logging.getLogger("tensorgate.processes")


class Front:
    """This process, from the supervisor's first order to its last."""

    def __init__(self, channel: socket.socket, sock: socket.socket) -> None:
        self._channel: Channel[orders.Orders] = Channel(channel, orders.Orders, self._obey)
        self._sock = sock
        self._assembly: Assembly | None = None
        self._serving: Serving | None = None
        self._stages: dict[int, tuple[Stage, Callable[[], None] | None]] = {}
        self._settled = False
        self._listen = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Obey until told to leave, or until the supervisor has gone."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        # A terminal sends it to every process; the supervisor tells this one when to leave.
        for number in (signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: None)
        obeying = asyncio.create_task(self._channel.run())
        abandoned = asyncio.create_task(self._when_abandoned())
        first = [asyncio.create_task(event.wait()) for event in (self._listen, self._over)]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if self._serving is not None and self._listen.is_set():
            asking = asyncio.create_task(self._ask_for_parts())
            assert self._assembly is not None
            await self._serving.run(self._models.watch(self._assembly.config.gateway.poll_seconds))
            asking.cancel()
            await self._say_last_words()
        for task in (obeying, abandoned, *first):
            task.cancel()

    async def page(self, path: str, trusted: bool) -> tuple[int, str | bytes]:
        """A page about all processes, as the supervisor knows it. Raises Unreachable."""
        try:
            page = await self._channel.ask(orders.AskPage(path, trusted), Page, ANSWER_SECONDS)
        except (ChannelClosed, TimeoutError):
            raise Unreachable from None
        return page.status, page.text

    async def _obey(self, order: orders.Orders) -> Struct:
        match order:
            case orders.Begin():
                return self._begin(order)
            case orders.Prepare():
                return await self._prepare(order)
            case orders.Commit():
                self._commit(order)
            case orders.Discard():
                self._discard(order)
            case orders.Settle():
                self._settle()
            case orders.Report():
                return self._report(order)
            case orders.AskDemands():
                return self._demands()
            case orders.Listen():
                self._listen.set()
            case orders.Share():
                assert self._assembly is not None
                self._assembly.bounds.limits.share(order.parts)
            case orders.Leave():
                self._go(order)
        return Done()

    def _begin(self, order: orders.Begin) -> Done:
        try:
            assembly = Assembly(order.config, order.base, order.roots, FollowingModels, Passes(order.secret))
            assembly.prepare()
        except ConfigError as error:
            return Done(str(error))
        assembly.gateway.fleet = self
        assembly.models.pools = order.pools
        self._assembly = assembly
        self._serving = Serving(assembly, self._sock)
        self._serving.keep_socket(True)
        return Done()

    @property
    def _models(self) -> FollowingModels:
        assert self._assembly is not None
        models = self._assembly.models
        assert isinstance(models, FollowingModels)
        return models

    async def _prepare(self, order: orders.Prepare) -> Prepared:
        assert self._assembly is not None
        change = order.change
        adopt = None
        if change.services is not None:
            try:
                adopt = self._assembly.draft(change.services)
            except ConfigError as error:
                return Prepared(str(error))
        services = self._assembly.config.services if change.services is None else change.services
        stage = await self._models.stage(change, needs(services, {}))
        self._stages[order.generation] = (stage, adopt)
        return Prepared(failed=stage.failed)

    def _commit(self, order: orders.Commit) -> None:
        stage, adopt = self._stages.pop(order.generation)
        self._models.adopt(stage, order.failed)
        if adopt is not None:
            adopt()

    def _discard(self, order: orders.Discard) -> None:
        stage, _ = self._stages.pop(order.generation, (None, None))
        if stage is not None:
            self._models.discard(stage)

    def _settle(self) -> None:
        self._models.tell()
        if not self._settled:
            self._settled = True
            settle_heap()

    def _report(self, order: orders.Report) -> Standing:
        assembly = self._assembly
        assert assembly is not None
        models = assembly.models
        families = families_of(assembly.observer.families()) if order.metrics else ()
        lines = () if order.metrics else tuple(banner(assembly, self._sock.getsockname()[1]))
        variants = orders.listed(assembly.observer.variants.tallies())
        shadows = assembly.observer.shadows.reports()
        told = tuple(models.describe()), dict(models.problems)
        requests = tuple(assembly.log.latest) if order.requests and assembly.log is not None else ()
        return Standing(models.ready, *told, families, variants, shadows, lines, requests)

    def _demands(self) -> Demands:
        assembly = self._assembly
        assert assembly is not None
        counts: dict[str, tuple[int, float]] = {}
        for one in assembly.observer.series():
            requests, seconds = counts.get(one.service, (0, 0.0))
            counts[one.service] = (requests + one.count, seconds + one.seconds)
        return Demands(
            tuple(Demand(name, *assembly.busy(name), *counts.get(name, (0, 0.0))) for name in assembly.config.services)
        )

    def _go(self, order: orders.Leave) -> None:
        if self._serving is not None:
            self._serving.keep_socket(order.replaced)
        self._leave(order.at_once)

    def _leave(self, at_once: bool = False) -> None:
        """Drain, or leave at once; a service manager may signal every process, so that it is told twice."""
        leaving = self._over.is_set()
        self._over.set()
        if self._serving is None or not self._listen.is_set():
            return
        if not leaving or at_once:
            self._serving.stop()
        if at_once and not leaving:
            self._serving.stop()

    async def _when_abandoned(self) -> None:
        """Without the supervisor nobody replaces this process: it answers whom it has, and goes."""
        await self._channel.closed.wait()
        if self._assembly is None or not self._assembly.pipeline.draining:
            log.warning("the supervisor has gone: leaving")
            if self._assembly is not None and (pools := self._assembly.models.pools) is not None:
                shutil.rmtree(pools.parent, ignore_errors=True)
            if self._serving is not None:
                self._serving.keep_socket(False)
            self._leave()

    async def _ask_for_parts(self) -> None:
        """Tell the supervisor how much the services' budgets are asked for, as long as they are."""
        assert self._assembly is not None
        limits = self._assembly.bounds.limits
        with contextlib.suppress(ChannelClosed):
            while True:
                await asyncio.sleep(SLICE_SECONDS)
                if counts := limits.asked():
                    with contextlib.suppress(TimeoutError):
                        await self._channel.ask(orders.Asked(counts), Done, 1.0)

    async def _say_last_words(self) -> None:
        assert self._assembly is not None
        try:
            observer = self._assembly.observer
            words = orders.LastWords(families_of(observer.families()), orders.listed(observer.variants.tallies()))
            await self._channel.ask(words, Done, 1.0)
        except (ChannelClosed, TimeoutError):
            pass


async def _run(channel: int, sock: int) -> None:
    with socket.socket(fileno=channel) as to_supervisor, socket.socket(fileno=sock) as listening:
        to_supervisor.setblocking(False)
        await Front(to_supervisor, listening).run()


def main() -> None:
    """Serve the supervisor that holds the other end of the channel."""
    begin_log()
    channel, sock = map(int, sys.argv[1:3])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(channel, sock))


if __name__ == "__main__":
    main()
