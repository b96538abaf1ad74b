"""What leads a gateway, in one process or in many, as the control plane sees it: what it serves, and how it stands."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.accesslog import AccessLine
from gateway.config import ServiceConfig
from gateway.differences import ShadowReport
from gateway.loads import Load
from gateway.passes import Entrance
from gateway.summary import VersionSummary
from gateway.variants import Tallies

DRAIN_NOTICE_SECONDS = 0.5
"""After SIGTERM: how long requests are still taken, each answer asking the client to go elsewhere next time."""


class ProcessSummary(Struct, frozen=True):
    """One front process."""

    slot: int
    state: str
    """starting, serving or leaving."""
    restarts: int = 0
    """Processes that have had this slot before it, and ended unasked."""


class FleetSummary(Struct, frozen=True):
    """The gateway as a whole."""

    ready: bool
    draining: bool
    models: tuple[VersionSummary, ...] = ()
    problems: dict[str, str] = {}
    shadows: Mapping[str, ShadowReport] = {}
    """Service to what copies of its requests have shown."""
    generation: int = 0
    """Counts the changes that every process has made."""
    processes: tuple[ProcessSummary, ...] = ()
    """Empty where one process does everything."""


class Fleet(Protocol):
    """All the processes that answer requests; there may be but this one."""

    async def apply(self, services: Mapping[str, ServiceConfig]) -> None:
        """Serve these from now on, all or none of them; returns once no process answers by what was before.

        Raises ConfigError, and then nothing has changed.
        """

    async def describe(self) -> FleetSummary:
        """How it stands."""

    async def metrics(self) -> bytes:
        """The page of metrics, added up over the processes."""

    async def variants(self) -> Tallies:
        """How the variants of services with canaries do, added up over the processes."""

    async def requests(self) -> Sequence[AccessLine]:
        """The latest requests, oldest first; none where no access log is kept."""

    async def loads(self) -> Mapping[str, Load]:
        """How much the deployments have to do whose load decides how many nodes they have, by their names."""

    async def scale(self, deployment: str, nodes: int) -> None:
        """So many nodes for that deployment from now on."""

    def entrance(self) -> Entrance:
        """Where its services are called, and what opens them for those who have signed in."""


class ControlPlane(Protocol):
    """What decides over a fleet, beside what answers requests and never in their way."""

    app: Any
    """ASGI; served on the admin listener."""

    async def run(self) -> None:
        """Decide, until cancelled."""

    async def adopt(self, services: Mapping[str, ServiceConfig]) -> None:
        """Serve what the configuration file says by now. Raises ConfigError, and then nothing has changed."""


Controls = Callable[[Fleet], ControlPlane]
