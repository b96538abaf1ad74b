"""A change of all front processes: prepared by each, then made by all before anybody tells of it."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gateway import orders
from gateway.channel import ChannelClosed
from gateway.config import ConfigError, ServiceConfig
from gateway.needs import MARK, on_disk
from gateway.orders import Change, Done, Failed, Prepared
from gateway.repository import ModelFolder
from gateway.slot import Member

_CRASHED = "a process of the gateway ended while it loaded this version; its log may say more"


class State:
    """What holds now in every front process, for those that come later."""

    def __init__(self) -> None:
        self.generation = 0
        self.models: dict[str, ModelFolder] = {}
        self.failed: tuple[Failed, ...] = ()
        self.problems: dict[str, str] = {}
        self.awaited: tuple[str, ...] = ()
        self.services: dict[str, ServiceConfig] | None = None
        """None as long as the configuration's hold."""

    def whole(self) -> Change:
        """All of it as one change."""
        return Change(self.models, self.failed, self.problems, self.services, self.awaited)  # type: ignore[arg-type]

    def note(self, change: Change, failed: Iterable[Failed]) -> None:
        """The change has been made."""
        self.generation += 1
        for name, folder in (change.models or {}).items():
            self.models.pop(name, None)
            if folder is not None:
                self.models[name] = folder
        present = {
            (name, version.version, version.fingerprint)
            for name, folder in self.models.items()
            for version in folder.versions.values()
        }
        known = {(one.model, one.version, one.fingerprint): one for one in (*self.failed, *failed)}
        self.failed = tuple(one for (*key, last), one in known.items() if (*key, on_disk(last)) in present)
        self.problems = self.problems if change.problems is None else change.problems
        self.awaited = self.awaited if change.awaited is None else change.awaited
        self.services = self.services if change.services is None else change.services


class Changes:
    """Makes changes one after another."""

    def __init__(self) -> None:
        self.state = State()
        self.members: set[Member] = set()
        """Those that answer requests, or are about to."""
        self.loading = asyncio.Lock()
        """Held by what may take long; no process joins meanwhile."""
        self._committing = asyncio.Lock()
        self._joined = asyncio.Event()
        self._numbers = itertools.count(1)

    async def anyone(self) -> Member:
        """A process that answers requests, as soon as there is one."""
        while not self.members:
            self._joined.clear()
            await self._joined.wait()
        return next(iter(self.members))

    async def first(self, change: Change) -> bool:
        """Have every process serve these models; nothing has changed if one of them ended over it."""
        async with self.loading, self._committing:
            number = next(self._numbers)
            members = list(self.members)
            prepared = await asyncio.gather(*(_prepare(member, orders.Prepare(number, change)) for member in members))
            if None in prepared:
                await _tell_all(members, orders.Discard(number))
                return False
            failed = tuple(dict.fromkeys(one for each in prepared if each for one in each.failed))
            await self._commit(number, change, members, failed)
            return True

    async def models(self, change: Change) -> None:
        """Have every process serve the models as the change says; one tries first what may end a process."""
        await self.anyone()
        async with self.loading:
            number = next(self._numbers)
            members = sorted(self.members, key=lambda member: member.since)
            failed: list[Failed] = list(change.failed)
            for group in (members[:1], members[1:]):
                order = orders.Prepare(number, msgspec.structs.replace(change, failed=tuple(failed)))
                for prepared in await asyncio.gather(*(_prepare(member, order) for member in group)):
                    failed += _tried(change, self.state.models) if prepared is None else prepared.failed
            async with self._committing:
                await self._commit(number, change, members, tuple(dict.fromkeys(failed)))

    async def services(self, services: Mapping[str, ServiceConfig]) -> None:
        """Have every process serve these. Raises ConfigError, and then none does."""
        async with self._committing:
            number = next(self._numbers)
            members = list(self.members)
            change = Change(services=dict(services))
            order = orders.Prepare(number, change)
            answers = [one for one in await asyncio.gather(*(_prepare(each, order) for each in members)) if one]
            problem = next((one.problem for one in answers if one.problem), "" if answers else "no process serves")
            if problem:
                await _tell_all(members, orders.Discard(number))
                raise ConfigError(problem)
            await self._commit(number, change, members, ())

    async def join(self, member: Member) -> None:
        """Bring a new process to where all others are, and let it listen. Raises ChannelClosed or ConfigError."""
        generation = self.state.generation
        await self._bring(member)
        async with self.loading, self._committing:
            if self.state.generation != generation:
                await self._bring(member)
            await member.ask(orders.Listen(), Done)
            self.members.add(member)
            self._joined.set()

    async def _bring(self, member: Member) -> None:
        number = next(self._numbers)
        known = self.state.failed
        prepared = await member.ask(orders.Prepare(number, self.state.whole()), Prepared)
        # NOTE: what services ask of a model may be what fails, and then the others serve it as it was before.
        lacking = [one for one in prepared.failed if one not in known and MARK not in one.fingerprint]
        if prepared.problem or lacking:
            texts = [f"{one.model} version {one.version}: {one.text}" for one in lacking]
            raise ConfigError(prepared.problem or "; ".join(texts))
        await member.ask(orders.Commit(number), Done)
        await member.ask(orders.Settle(number), Done)

    async def _commit(self, number: int, change: Change, members: list[Member], failed: tuple[Failed, ...]) -> None:
        await _tell_all(members, orders.Commit(number, failed))
        self.state.note(change, failed)
        await _tell_all(members, orders.Settle(number))


async def _prepare(member: Member, order: orders.Prepare) -> Prepared | None:
    """None if the process has ended over it."""
    try:
        return await member.ask(order, Prepared)
    except ChannelClosed:
        return None


async def _tell_all(members: Iterable[Member], order: orders.Order) -> None:
    await asyncio.gather(*(member.tell(order) for member in members))


def _tried(change: Change, before: Mapping[str, ModelFolder]) -> Iterator[Failed]:
    """The versions that a process may have ended over."""
    for name, folder in (change.models or {}).items():
        if folder is None:
            continue
        known = before.get(name)
        for number in folder.wanted:
            version = folder.versions.get(number)
            loaded = known.versions.get(number) if known else None
            if version is not None and (loaded is None or loaded.fingerprint != version.fingerprint):
                yield Failed(name, number, version.fingerprint, _CRASHED)
