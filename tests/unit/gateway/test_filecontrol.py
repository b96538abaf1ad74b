"""The file leads: it is read again on a signal, and what is decided of canaries is carried out."""

import asyncio
import threading
from collections.abc import Mapping, Sequence

import pytest
from scene import on_loop

from gateway.accesslog import AccessLine
from gateway.config import CanaryConfig, Config, ConfigError, GatewayConfig, ServiceConfig
from gateway.filecontrol import FileControl
from gateway.fleet import FleetSummary
from gateway.rereading import Rereading
from gateway.rollout import Decision
from gateway.variants import Tallies

BEFORE = Config(services={"digits": ServiceConfig()})


class Processes:
    """A fleet that notes what it is to serve."""

    def __init__(self) -> None:
        self.served: list[Mapping[str, ServiceConfig]] = []
        self.changed = asyncio.Event()

    async def apply(self, services: Mapping[str, ServiceConfig]) -> None:
        if "wrong" in services:
            raise ConfigError("services.wrong: no")
        self.served.append(services)
        self.changed.set()

    async def describe(self) -> FleetSummary:
        return FleetSummary(True, False)

    async def metrics(self) -> bytes:
        return b""

    async def requests(self) -> Sequence[AccessLine]:
        return ()

    async def variants(self) -> Tallies:
        return {}


class Desk:
    """A file that is read when it may be, and what was served of it."""

    def __init__(self, *found: Config | Exception) -> None:
        self.found = list(found)
        self.reads = 0
        self.may_read = threading.Event()
        self.may_read.set()
        self.fleet = Processes()
        self.control = FileControl(self.fleet, BEFORE)
        self.reading = Rereading(self._read, self.control.adopt, BEFORE)

    def _read(self) -> Config:
        self.reads += 1
        self.may_read.wait(10)
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found


@on_loop
async def test_signals_during_a_read_are_one_more() -> None:
    """The last state of the file is always read, and no queue of signals grows."""
    desk = Desk(BEFORE)
    desk.may_read.clear()
    task = asyncio.create_task(desk.reading.run())
    for _ in range(10):
        await asyncio.sleep(0)
        desk.reading.signalled()
    desk.may_read.set()
    while len(desk.fleet.served) < 2:
        desk.fleet.changed.clear()
        await desk.fleet.changed.wait()
    task.cancel()
    assert desk.reads == 2


@pytest.mark.parametrize(
    "error", [ConfigError("services.x: wrong"), OSError("no disk"), Config(services={"wrong": ServiceConfig()})]
)
def test_what_cannot_be_served_changes_nothing(error: Config | Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong, the process goes on, and reads again when it is told to."""

    @on_loop
    async def run() -> None:
        desk = Desk(error, BEFORE)
        await desk.reading.reload()
        assert (desk.fleet.served, desk.control.services) == ([], BEFORE.services)
        assert "the services stay as they are" in caplog.text
        await desk.reading.reload()
        assert desk.fleet.served == [BEFORE.services]

    run()


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Config(services={"other": ServiceConfig()}), False),
        (Config(services=BEFORE.services, gateway=GatewayConfig(port=1)), True),
    ],
)
def test_what_needs_a_start_is_told(found: Config, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Services are served anew; of other changes the log says that they wait."""

    @on_loop
    async def run() -> None:
        desk = Desk(found)
        await desk.reading.reload()
        assert desk.fleet.served == [found.services]
        assert ("holds from the next start on" in caplog.text) == told

    run()


@on_loop
async def test_decisions_are_carried_out() -> None:
    """On the services as they are by then; one that has gone meanwhile is let be."""
    desk = Desk(Config(services={"digits": ServiceConfig(owner="ada", canary=CanaryConfig(model="new"))}))
    await desk.reading.reload()
    await desk.control.carry_out("digits", Decision("advance", 30, "good"))
    await desk.control.carry_out("gone", Decision("advance", 30, "good"))
    grown = ServiceConfig(owner="ada", canary=CanaryConfig(model="new", weight=30))
    assert desk.fleet.served[1:] == [{"digits": grown}]
