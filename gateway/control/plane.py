"""The control plane: it validates, publishes to the fleet and remembers, one change at a time, all or nothing."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gateway.analyst import Analyst
from gateway.config import Config, ConfigError, ServiceConfig
from gateway.control import changes
from gateway.control.accounts import Accounts
from gateway.control.elastic import Elastic
from gateway.control.errors import ControlError, Invalid, NotFound
from gateway.control.plans import Change, plan, told
from gateway.control.store import NewEvent, Revision, Store
from gateway.fleet import Fleet
from gateway.rollout import Decision, carried_out

R = TypeVar("R")
Telling = Callable[[Sequence[Change]], Sequence[NewEvent]]
"""The events of what has changed."""
Edit = Callable[[ServiceConfig], ServiceConfig]

SYSTEM = "tensorgate"
"""Who acts when nobody does."""
EXPIRY_SECONDS = 1.0
"""How often it is looked whether a service has expired; callers are told at the moment itself."""

log = logging.getLogger("tensorgate.control")


class Outcome(Struct, frozen=True):
    """What an act has led to."""

    revision: Revision
    changes: tuple[Change, ...]


class Control:
    """Decides over a fleet; requests to models never come near it."""

    def __init__(self, store: Store, config: Config, base: Path) -> None:
        self.store = store
        self.accounts = Accounts(store)
        self.config = config
        self.base = base
        self.head: Revision = store.head()
        """What is served."""
        self.fleet: Fleet | None = None
        self.elastic: Elastic | None = None
        self._turn = asyncio.Lock()
        self.changed = asyncio.Condition()
        """Told of every new revision."""

    @property
    def services(self) -> dict[str, ServiceConfig]:
        """The services as they are now; not to be changed."""
        return self.head.services

    def service(self, name: str) -> ServiceConfig:
        """That service. Raises NotFound."""
        found = self.services.get(name)
        if found is None:
            raise NotFound(f"there is no service {name[:128]!r}")
        return found

    # Acts...

    async def edit(self, actor: str, name: str, edit: Edit, kind: str, text: str, **data: Any) -> Outcome:
        """Make one service another. Raises ControlError, and then nothing has changed."""

        def edited(services: dict[str, ServiceConfig]) -> None:
            services[name] = edit(self.service(name))

        return await self.act(actor, edited, [NewEvent(kind, name, text, data)])

    async def act(
        self,
        actor: str,
        change: Callable[[dict[str, ServiceConfig]], None],
        happened: Sequence[NewEvent] | Telling = (),
        note: str = "",
    ) -> Outcome:
        """Change the services, publish them, and remember it. Raises ControlError, and then nothing has changed."""
        acting = asyncio.ensure_future(self._act(actor, change, happened, note))
        try:
            return await asyncio.shield(acting)
        except asyncio.CancelledError:
            # What has begun is finished: a store that goes on from a thread would be apart from what is served.
            await asyncio.wait({acting})
            raise

    async def _act(
        self,
        actor: str,
        change: Callable[[dict[str, ServiceConfig]], None],
        happened: Sequence[NewEvent] | Telling,
        note: str,
    ) -> Outcome:
        async with self._turn:
            before = self.head
            after = dict(before.services)
            change(after)
            found = plan(before.services, after)
            if not found:
                return Outcome(before, ())
            await self._publish(after)
            try:
                events = happened(found) if callable(happened) else happened
                note = note or "; ".join(told(one) for one in found)[:1000]
                self.head = await self.blocking(self.store.commit, after, actor, note, events)
            except BaseException:
                await self._publish(before.services)
                raise
        async with self.changed:
            self.changed.notify_all()
        return Outcome(self.head, found)

    async def note(self, actor: str, *happened: NewEvent) -> None:
        """Remember what has happened without a change of the services."""
        await self.blocking(self.store.note, actor, happened)

    async def blocking(self, function: Callable[..., R], *args: Any) -> R:
        """Call the store from a thread: it may take as long as the database does."""
        return await asyncio.to_thread(function, *args)

    async def _publish(self, services: Mapping[str, ServiceConfig]) -> None:
        assert self.fleet is not None
        try:
            await self.fleet.apply(services)
        except ConfigError as error:
            text = str(error)
            field, _, reason = text.partition(": ")
            raise Invalid(reason or text, field.removeprefix("services.") if reason else "") from None

    # By itself...

    async def run(self) -> None:
        """See that services expire, and that canaries' weights follow how they do, until cancelled."""
        assert self.fleet is not None
        analyst = Analyst(lambda: self.services, self.fleet.variants, self.carry_out)
        self.elastic = Elastic(lambda: self.services, self.fleet, lambda event: self.note(SYSTEM, event))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._expire())
            tasks.create_task(analyst.run())
            tasks.create_task(self.elastic.run())

    async def carry_out(self, name: str, decision: Decision) -> None:
        """What the analysis has decided of a service's canary: remembered, whether or not it changes anything."""
        data = msgspec.to_builtins(decision)
        event = NewEvent("analysis", name, f"the canary of {name}: {decision.action}: {decision.reason}", data)

        def carry_out(services: dict[str, ServiceConfig]) -> None:
            services[name] = carried_out(self.service(name), decision)

        outcome = await self.act(SYSTEM, carry_out, [event])
        if not outcome.changes:
            await self.note(SYSTEM, event)

    async def _expire(self) -> None:
        while True:
            moment = datetime.now(UTC)
            due = [name for name, one in self.services.items() if _is_over(one, moment)]
            for name in due:
                try:
                    await self.edit(SYSTEM, name, changes.expired, "expired", f"{name} has run for its duration")
                except ControlError as error:
                    log.error("services.%s: it has expired, which cannot be noted: %s", name, error)
                except Exception:
                    log.exception("services.%s: it has expired, which cannot be noted", name)
            await asyncio.sleep(EXPIRY_SECONDS)


def _is_over(service: ServiceConfig, moment: datetime) -> bool:
    return service.state == "running" and service.expires_at is not None and service.expires_at <= moment
