"""The process that leads many: it keeps the port, watches the models and replaces whoever ends; it answers nobody."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gateway import orders
from gateway.accesslog import AccessLine, AccessLog
from gateway.aggregate import families_of, joined, page
from gateway.changes import Changes
from gateway.channel import ChannelClosed
from gateway.config import Config, ConfigError, ServiceConfig
from gateway.differences import added
from gateway.fleet import DRAIN_NOTICE_SECONDS, Controls, FleetSummary, ProcessSummary
from gateway.fleetnodes import FleetNodes
from gateway.leading import lead
from gateway.loads import Load
from gateway.orders import Done, Family, Page, Standing
from gateway.pages import METRICS, told
from gateway.parts import SLICE_SECONDS, Parts
from gateway.passes import Entrance, Passes, entrance
from gateway.poolkeeper import PoolKeeper
from gateway.rereading import Adopt
from gateway.slot import Member, Slot, ending
from gateway.variants import Tallies, Tally
from gateway.watching import follow

BEGIN_SECONDS = 60.0
"""How long a new process may take until it has read its configuration."""
REPORT_SECONDS = 2.0
"""How long one may take to say how it stands."""
MOST_TRIES = 3
"""How often a process may end before it serves, at the start."""
LEAVE_SECONDS = 5.0
"""Beyond the time to drain: then a process is ended."""

FIXED = ("host", "port", "grpc_port", "workers")
"""Keys of `[gateway]` that only a new start can change."""

log = logging.getLogger("tensorgate.processes")


class Supervisor:
    """Many front processes as one gateway."""

    def __init__(
        self,
        config: Config,
        base: Path,
        roots: tuple[Path, ...],
        socks: list[socket.socket],
        reread: Callable[[], Config] | None = None,
    ) -> None:
        self._config = config
        self._base = base
        self._roots = roots
        self._reread = reread
        self._slots = [Slot(number, sock) for number, sock in enumerate(socks)]
        self._changes = Changes()
        self._passes = Passes()
        self._pools = PoolKeeper(lambda: self._config.gateway.hang_seconds)
        self._nodes = FleetNodes(self._pools)
        self._parts: Parts[Member] = Parts()
        self._all: set[Member] = set()
        """Every process that has not ended."""
        self._ended: tuple[Family, ...] = ()
        self._ended_variants: dict[tuple[str, str], Tally] = {}
        self._adopt: Adopt | None = None
        """What has the file's services served."""
        self._tasks: asyncio.TaskGroup = asyncio.TaskGroup()
        self._background: list[asyncio.Task[None]] = []
        self._started = False
        self._draining = False
        self._reloading = asyncio.Lock()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)

    # What leads it sees...

    async def apply(self, services: Mapping[str, ServiceConfig]) -> None:
        """Serve these from now on, in every process or in none. Raises ConfigError."""
        await self._changes.services(services)
        self._nodes.adopt(services)

    async def describe(self) -> FleetSummary:
        """How it stands."""
        states = tuple(_summary(slot) for slot in self._slots)
        generation = self._changes.state.generation
        asked = await asyncio.gather(*(self._count(member, metrics=False) for member in list(self._changes.members)))
        standings = [one for one in asked if one is not None]
        if not standings:
            return FleetSummary(False, self._draining, generation=generation, processes=states)
        one, shadows = standings[0], dict(standings[0].shadows)
        for other in standings[1:]:
            for name, report in other.shadows.items():
                shadows[name] = added(shadows[name], report) if name in shadows else report
        ready = one.ready and self._started
        return FleetSummary(ready, self._draining, one.models, one.problems, shadows, generation, states)

    async def metrics(self) -> bytes:
        """The page of metrics, added up over the processes."""
        await asyncio.gather(*(self._count(member) for member in list(self._all)))
        parts = {str(slot.number): slot.member.families for slot in self._slots if slot.member is not None}
        named = {slot.member for slot in self._slots}
        parts |= {f"leaving-{number}": member.families for number, member in enumerate(self._all - named)}
        parts["supervisor"] = (*families_of(self._registry.collect()), *self._own_families())
        return page(parts, self._ended)

    async def requests(self) -> Sequence[AccessLine]:
        """The latest requests of all processes, oldest first."""
        told = await asyncio.gather(*(self._count(member, requests=True) for member in list(self._all)))
        lines = [line for standing in told if standing is not None for line in standing.requests]
        return sorted(lines, key=lambda line: line.time)[-AccessLog.LATEST :]

    async def loads(self) -> Mapping[str, Load]:
        """How much the deployments have to do whose load decides how many nodes they have."""
        return await self._nodes.loads(list(self._all), await self.variants())

    async def scale(self, deployment: str, nodes: int) -> None:
        """So many nodes for that deployment from now on."""
        self._nodes.scale(deployment, nodes)

    def entrance(self) -> Entrance:
        """Where its services are called, and what opens them for those who have signed in."""
        return entrance(self._slots[0].sock, self._passes)

    async def variants(self) -> Tallies:
        """How the variants of services with canaries do, added up over the processes."""
        await asyncio.gather(*(self._count(member, metrics=False) for member in list(self._all)))
        tallies = dict(self._ended_variants)
        for member in self._all:
            _add(tallies, member)
        return tallies

    # Its life...

    async def run(
        self,
        started: Callable[[Iterable[str]], None],
        controls: Controls | None = None,
        admin: socket.socket | None = None,
    ) -> None:
        """Serve until a signal, then drain; `started` gets what is to be said once every model has been tried."""
        if self._config.models_control.enabled:
            text = "models are loaded by call in one process only; set gateway.workers to 1"
            raise ConfigError(f"models_control.enabled: {text}")
        self._nodes.adopt(self._config.services)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        try:
            self._pools.open()
            async with self._tasks:
                self._begin(self._pools.run())
                self._begin(self._lead(started))
                self._begin(self._deal())
                leading, self._adopt = lead(self, self._config, controls, admin)
                self._begin(leading)
        except BaseExceptionGroup as group:
            self._end_all()
            failures, _ = group.split(ConfigError)
            if failures is None:
                raise
            first: BaseException = failures
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        finally:
            self._end_all()

    async def _lead(self, started: Callable[[Iterable[str]], None]) -> None:
        await asyncio.gather(*(self._fill(slot) for slot in self._slots))

        async def first() -> None:
            standing = await (await self._changes.anyone()).ask(orders.Report(), Standing)
            self._started = True
            started(standing.banner)

        await follow(self._config, self._base, self._roots, self._changes, first)

    async def _deal(self) -> None:
        """Deal out the services' budgets, slice by slice."""
        while True:
            await asyncio.sleep(SLICE_SECONDS)
            for member, parts in self._parts.deal(self._changes.members).items():
                self._tasks.create_task(self._share(member, parts))

    async def _share(self, member: Member, parts: dict[str, float]) -> None:
        with contextlib.suppress(ChannelClosed, TimeoutError):
            await member.ask(orders.Share(parts), Done, REPORT_SECONDS)

    def _begin(self, work: Awaitable[None]) -> None:
        """Run it until the gateway leaves."""
        self._background.append(self._tasks.create_task(_awaited(work)))

    def _end_all(self) -> None:
        for member in self._all:
            member.kill()
        self._pools.close()

    # Processes come...

    async def _fill(self, slot: Slot) -> None:
        """A process on the slot, however often one ends before it serves. Raises ConfigError at the start."""
        tries = 0
        while True:
            tries += 1
            problem = await self._try(slot)
            if not problem or self._draining:
                return
            log.error("process %d: %s", slot.number, problem)
            if not self._started and tries >= MOST_TRIES:
                raise ConfigError(f"front process {slot.number} ended {tries} times before it could serve: {problem}")
            await asyncio.sleep(slot.pause_after(None))

    async def _try(self, slot: Slot) -> str:
        """Why no process could be had."""
        member = await slot.launch(self._answer)
        self._all.add(member)
        member.watching = watching = self._tasks.create_task(self._watch(slot, member))
        try:
            begun = await member.ask(
                orders.Begin(self._config, self._base, self._roots, self._passes.secret, self._pools.address),
                Done,
                BEGIN_SECONDS,
            )
            if begun.problem:
                if not self._started:
                    raise ConfigError(begun.problem)
                return begun.problem
            await self._changes.join(member)
        except ChannelClosed:
            code = await watching
            return f"it ended {ending(code)} before it could serve"
        except TimeoutError:
            return f"it did not begin within {BEGIN_SECONDS:g} s"
        except ConfigError as error:
            if not self._started:
                raise
            return str(error)
        finally:
            if member not in self._changes.members:
                member.kill()
        before, slot.member = slot.member, member
        member.serving = True
        if self._draining:
            await member.leave()
        if before is not None and before.watching is not None and before in self._all:
            await before.leave(replaced=True)
            await asyncio.wait([before.watching])
        return ""

    async def _watch(self, slot: Slot, member: Member) -> int:
        """See to the process until it has ended, and to another one if it was not told to; its exit code."""
        code = await member.ended(self._config.gateway.hang_seconds)
        self._all.discard(member)
        self._changes.members.discard(member)
        self._ended = joined([self._ended, member.what_counts_on])
        _add(self._ended_variants, member)
        if member.serving and slot.member is member:
            slot.member = None
            if not self._draining:
                slot.restarts += 1
                log.error("process %d ended %s; another one takes its place", slot.number, ending(code))
                self._tasks.create_task(self._replace_dead(slot, member))
        return code

    async def _replace_dead(self, slot: Slot, member: Member) -> None:
        await asyncio.sleep(slot.pause_after(member))
        if not self._draining:
            await self._fill(slot)

    # ...and go...

    def _stop(self) -> None:
        at_once = self._draining
        if at_once:
            log.warning("second signal: leaving at once")
        self._draining = True
        self._tasks.create_task(self._leave(at_once))

    async def _leave(self, at_once: bool) -> None:
        gateway = self._config.gateway
        await asyncio.gather(*(member.leave(at_once=at_once) for member in list(self._all)))
        seconds = LEAVE_SECONDS + (0 if at_once else DRAIN_NOTICE_SECONDS + gateway.drain_seconds)
        watching = [member.watching for member in self._all if member.watching is not None]
        if watching and (await asyncio.wait(watching, timeout=seconds))[1]:
            log.error("%d processes did not leave in time", len(self._all))
            for member in self._all:
                member.kill()
        await self._pools.leave()
        for task in self._background:
            task.cancel()

    def _hang_up(self) -> None:
        self._tasks.create_task(self._reload())

    async def _reload(self) -> None:
        """Replace one process after another, each by one with the configuration as it is now."""
        async with self._reloading:
            try:
                if self._reread is not None:
                    found = await asyncio.to_thread(self._reread)
                    if self._adopt is not None:
                        await self._adopt(found.services)
                    self._config = _kept(self._config, found)
            except ConfigError as error:
                log.error("not reloaded: %s", error)
                return
            for slot in self._slots:
                if self._draining:
                    return
                problem = await self._try(slot)
                if problem:
                    log.error("not reloaded: process %d: %s", slot.number, problem)
                    return
            log.info("reloaded: every process is a new one")

    # What front processes ask...

    async def _answer(self, member: Member, wish: orders.Wishes) -> Struct:
        match wish:
            case orders.LastWords():
                member.families, member.variants = wish.families, wish.variants
                return Done()
            case orders.Asked():
                self._parts.ask(member, wish.counts)
                return Done()
            case orders.AskPage():
                if wish.path == METRICS:
                    return Page(200, (await self.metrics()).decode())
                status, text = told(wish.path, await self.describe(), wish.trusted)
                return Page(status, text if isinstance(text, str) else text.decode())
        raise TypeError(type(wish).__name__)

    async def _count(self, member: Member, metrics: bool = True, requests: bool = False) -> Standing | None:
        try:
            standing = await member.ask(orders.Report(metrics, requests), Standing, REPORT_SECONDS)
        except (ChannelClosed, TimeoutError):
            return None
        member.families = standing.families or member.families
        member.variants = standing.variants
        return standing

    def _own_families(self) -> tuple[Family, ...]:
        serving = GaugeMetricFamily("tensorgate_processes", "Front processes that answer requests")
        serving.add_metric([], len(self._changes.members))
        restarts = CounterMetricFamily("tensorgate_process_restarts", "Front processes replaced after they had ended")
        restarts.add_metric([], sum(slot.restarts for slot in self._slots))
        pools = CounterMetricFamily("tensorgate_pool_process_restarts", "Processes with the workers replaced likewise")
        pools.add_metric([], self._pools.restarts)
        return families_of([serving, restarts, pools])


def _add(tallies: dict[tuple[str, str], Tally], member: Member) -> None:
    for service, variant, tally in member.variants:
        key = (service, variant)
        tallies[key] = tallies[key].plus(tally) if key in tallies else tally


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _summary(slot: Slot) -> ProcessSummary:
    member = slot.member
    state = "starting" if member is None else "leaving" if member.leaving else "serving"
    return ProcessSummary(slot.number, state, slot.restarts)


def _kept(before: Config, after: Config) -> Config:
    """The configuration that was read, with what only a new start can change as it was.

    So are the services: what has changed of them since the start is what each new process is brought up to.
    """
    fixed = {name: getattr(before.gateway, name) for name in FIXED}
    for name, value in fixed.items():
        if getattr(after.gateway, name) != value:
            log.warning("gateway.%s: a change needs a new start", name)
    return msgspec.structs.replace(
        after,
        services=before.services,
        models_dir=before.models_dir,
        models=before.models,
        gateway=msgspec.structs.replace(after.gateway, **fixed),
    )
