"""What a supervisor and its front processes tell one another."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from gateway.accesslog import AccessLine
from gateway.config import Config, ServiceConfig
from gateway.differences import ShadowReport
from gateway.errors import LoadFailed, OutOfMemory
from gateway.lifecycle import Failure
from gateway.repository import ModelFolder
from gateway.summary import VersionSummary
from gateway.variants import Tallies, Tally


class Order(Struct, frozen=True, tag=True):
    """From the supervisor to a front process."""


class Wish(Struct, frozen=True, tag=True):
    """From a front process to the supervisor."""


# Changes...


class Failed(Struct, frozen=True):
    """A version that could not be loaded somewhere, so that nobody serves it."""

    model: str
    version: int
    fingerprint: str
    text: str
    out_of_memory: bool = False

    def failure(self) -> Failure:
        """As the one who asks for the version is told."""
        return (OutOfMemory if self.out_of_memory else LoadFailed)(self.text)


class Change(Struct, frozen=True):
    """What is to hold from now on; None where nothing changes."""

    models: dict[str, ModelFolder | None] | None = None
    """Name to the folder that the model follows; None once it is gone."""
    failed: tuple[Failed, ...] = ()
    """Versions in those folders that need not be tried."""
    problems: dict[str, str] | None = None
    services: dict[str, ServiceConfig] | None = None
    awaited: tuple[str, ...] | None = None
    """Of the models that were there at the start, those without which the gateway is not ready."""


# What the supervisor says...


class Begin(Order, frozen=True):
    """Be a gateway by this configuration; nothing listens yet."""

    config: Config
    base: Path
    roots: tuple[Path, ...]
    secret: bytes = b""
    """Of the passes that the supervisor makes."""
    pools: Path | None = None
    """Where the process takes connections that has the workers of all."""


class Listen(Order, frozen=True):
    """Take connections from now on."""


class Prepare(Order, frozen=True):
    """Load and check all that the change needs, and keep it aside."""

    generation: int
    change: Change


class Commit(Order, frozen=True):
    """Requests that come from now on see the change; what is told of the models is still what was."""

    generation: int
    failed: tuple[Failed, ...] = ()
    """Versions that others could not load."""


class Discard(Order, frozen=True):
    """Forget what was prepared."""

    generation: int


class Settle(Order, frozen=True):
    """Everybody has made the change: tell of it."""

    generation: int


class Report(Order, frozen=True):
    """Say how you stand."""

    metrics: bool = False
    requests: bool = False
    """Whether the latest requests are told of, too."""


class Ping(Order, frozen=True):
    """Show that the event loop runs."""


class Leave(Order, frozen=True):
    """Drain and end."""

    replaced: bool
    """Whether another process listens on the same socket."""
    at_once: bool = False


class Share(Order, frozen=True):
    """Have these parts of the services' budgets."""

    parts: dict[str, float]


class AskDemands(Order, frozen=True):
    """Say what is asked of your services."""


Orders = Begin | Listen | Prepare | Commit | Discard | Settle | Report | Ping | Leave | Share | AskDemands


# ...and says to the process that has the workers of all...


class SetNodes(Order, frozen=True):
    """Have so many workers of these models."""

    nodes: dict[str, int]


class AskNodes(Order, frozen=True):
    """Say how the models' workers stand."""


PoolOrders = SetNodes | AskNodes | Ping | Leave


def listed(tallies: Tallies) -> tuple[tuple[str, str, Tally], ...]:
    """As they are sent."""
    return tuple((*key, tally) for key, tally in tallies.items())


# What front processes answer and ask...


class Done(Struct, frozen=True):
    """It is so; or why it cannot be."""

    problem: str = ""


class Prepared(Struct, frozen=True):
    """The change can be made, but for what failed; with a problem it cannot."""

    problem: str = ""
    failed: tuple[Failed, ...] = ()


class Family(Struct, frozen=True):
    """A metric, and all its samples."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[str, dict[str, str], float], ...]


class Standing(Struct, frozen=True):
    """How a front process stands."""

    ready: bool
    models: tuple[VersionSummary, ...]
    problems: dict[str, str]
    families: tuple[Family, ...] = ()
    variants: tuple[tuple[str, str, Tally], ...] = ()
    """By service and variant."""
    shadows: Mapping[str, ShadowReport] = {}
    banner: tuple[str, ...] = ()
    requests: tuple[AccessLine, ...] = ()


class Demand(Struct, frozen=True):
    """What is asked of a service in one process."""

    service: str
    running: int
    waiting: int
    requests: int
    """Answered since the start, in so many seconds together."""
    seconds: float


class Demands(Struct, frozen=True):
    """What is asked of all of them."""

    services: tuple[Demand, ...]


class NodesTold(Struct, frozen=True):
    """How the nodes of a model stand, as `Measured` has it."""

    nodes: tuple[int, int]
    process_bytes: int
    cpu_seconds: float


class Standings(Struct, frozen=True):
    """How the nodes of all models stand that have any."""

    models: dict[str, NodesTold]


class Page(Struct, frozen=True):
    """One of the operators' pages, for the gateway as a whole."""

    status: int
    text: str


class AskPage(Wish, frozen=True):
    """What the page of that path says to who may know names, or may not."""

    path: str
    trusted: bool


class LastWords(Wish, frozen=True):
    """What was counted, before the process ends."""

    families: tuple[Family, ...]
    variants: tuple[tuple[str, str, Tally], ...] = ()


class Asked(Wish, frozen=True):
    """How much the services' budgets were asked for since the last time."""

    counts: dict[str, float]


Wishes = AskPage | LastWords | Asked
