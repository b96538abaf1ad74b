"""What requests obey: the services, their keys and their own operations, in one snapshot that is replaced whole."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from gateway.auth import Authenticator
from gateway.canary import CANARY, STABLE, TurnsOfAll, Variant, wish
from gateway.clock import SteadyClock
from gateway.codechecks import CodeChecks
from gateway.config import Config, ConfigError, ServiceConfig
from gateway.errors import ModelNotFound, ModelNotReady, NotReady
from gateway.expiry import expiries, require_running, starts
from gateway.gate import Who
from gateway.grants import Grant
from gateway.interfaces import Adapter, Infer
from gateway.lifecycle import Loaded
from gateway.models import Models
from gateway.passes import Passes
from gateway.paths import Route
from gateway.protocols import load_own_adapters
from gateway.routing import Deployment, Directory, Service
from gateway.types import Call, Target

Run = TypeVar("Run", bound=Infer)


def is_loopback(peer: str) -> bool:
    """Whether the address is this machine's own."""
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


class Memory:
    """What is remembered from one snapshot to the next, all on one event loop."""

    def __init__(self, clock: SteadyClock | None = None, passes: Passes | None = None) -> None:
        self.clock = clock or SteadyClock()
        self.turns = TurnsOfAll()
        self.checks = CodeChecks()
        self.passes = passes or Passes()


class Choice(Struct, frozen=True):
    """Who answers a call."""

    loaded: Loaded
    variant: Variant = ""
    missed: bool = False
    """Whether it was the canary's turn, which could not answer."""


class Plane(Struct, frozen=True):
    """The services as they are at one moment; a request keeps the one that it began with."""

    directory: Directory
    auth: Authenticator
    own_operations: Mapping[tuple[str, str, str, str], Infer]
    """By service, protocol, method and path: those of services with protocol tables of their own."""
    memory: Memory
    since: Mapping[str, float]
    """By the memory's clock: when each running service started."""

    def own(self, operation: Run, service: Service, route: Route) -> Run:
        """The operation as the service has it configured."""
        if not self.own_operations:
            return operation
        key = (service.name, route.protocol, operation.method, operation.path)
        return cast(Run, self.own_operations.get(key, operation))

    def who(self, call: Call, opened: Grant, peer: str) -> Who:
        """Whose budgets the call uses."""
        key = self.auth.caller(call, opened)
        return Who(key, key or peer.encode(), opened.key)

    def require_running(self, service: Service) -> None:
        """Raise ServiceStopped, ServiceExpired, ServiceFailed or NotReady unless the service answers."""
        if service.state != "running" or service.expires is not None:
            require_running(service, self.memory.clock())

    def choose(self, service: Service, target: Target, call: Call, *, counts: bool = True) -> Choice:
        """The deployment that answers; if it `counts`, the call is one of those that the weight is a share of.

        SPEC: the header wins over the weight, and Always over a version in the path, which else means the stable one.
        """
        canary = service.canary
        if canary is None:
            return Choice(self.directory.pick(service, target))
        wished = wish(call)
        if wished == CANARY:
            return self._canary(service, canary)
        missed = False
        pinned = wished == STABLE or target.version is not None or target.label is not None
        if counts and not pinned:
            turns = self.memory.turns.of(service.name)
            if turns.canary(canary.weight):
                try:
                    return Choice(self.directory.pick_canary(canary), CANARY)
                except (ModelNotFound, ModelNotReady) as error:
                    turns.miss(service.name, str(error))
                    missed = True
        return Choice(self.directory.pick(service, target), STABLE, missed)

    def choose_again(self, service: Service, target: Target, variant: Variant) -> Choice:
        """The same variant for a call whose turn comes later; the stable one if the canary has gone meanwhile."""
        if variant == CANARY and service.canary is not None:
            try:
                return Choice(self.directory.pick_canary(service.canary), CANARY)
            except (ModelNotFound, ModelNotReady) as error:
                self.memory.turns.of(service.name).miss(service.name, str(error))
                variant = STABLE
        return Choice(self.directory.pick(service, target), variant)

    def shadowed(self, service: Service, variant: Variant) -> Loaded | None:
        """The canary's version, if it is to get a copy of a request that the variant answers."""
        canary = service.canary
        if canary is None or variant != STABLE or not canary.shadow.percent:
            return None
        if not self.memory.turns.of(service.name).shadow(canary.shadow.percent):
            return None
        try:
            return self.directory.pick_canary(canary)
        except (ModelNotFound, ModelNotReady):
            return None

    def ready(self, route: Route, call: Call, opened: Grant) -> bool:
        """Whether the service that the call names takes requests; without a name, whether all models do.

        Raises Unauthenticated or Forbidden: how a service stands whose callers need a key is told with one.
        """
        service = self.directory.hinted(route, call)
        if service is not None:
            self.auth.admit(call, opened, service)
            try:
                self.require_running(service)
            except NotReady:
                return False
        return self.directory.ready(route, call)

    def trusts(self, opened: Grant, peer: str) -> bool:
        """Whether a caller is shown the names of all services: from this machine, with a key, or if none needs one."""
        return opened.valid or not self.auth.protects or is_loopback(peer)

    def _canary(self, service: Service, canary: Deployment) -> Choice:
        try:
            return Choice(self.directory.pick_canary(canary), CANARY)
        except (ModelNotFound, ModelNotReady) as error:
            text = f"the canary of the service {service.name} does not answer: {error}"
            raise NotReady(text, retry_after=1.0) from None


def draw(
    config: Config,
    base: Path,
    models: Models,
    adapters: Mapping[str, Adapter],
    before: Plane | None = None,
    memory: Memory | None = None,
) -> Plane:
    """The snapshot that follows the one `before`. Raises ConfigError, and changes nothing."""
    if not config.gateway.data_dir:
        _require_codes(config.services)
    own_adapters = load_own_adapters(config, adapters)
    own_operations = {
        (*service_and_protocol, operation.method, operation.path): operation
        for service_and_protocol, adapter in own_adapters.items()
        for operation in adapter.routes()
        if isinstance(operation, Infer)
    }
    memory = before.memory if before else memory or Memory()
    auth = Authenticator(
        config.services,
        base,
        config.models_control,
        steady=memory.clock,
        checks=memory.checks,
        own_passes=memory.passes if config.gateway.data_dir else None,
        caller_key=memory.passes.derived(b"caller"),
    )
    since = starts(config.services, before.since if before else {}, memory.clock())
    directory = Directory(config, models, expiries(config.services, since))
    return Plane(directory, auth, own_operations, memory, since)


def _require_codes(services: Mapping[str, ServiceConfig]) -> None:
    """Raise ConfigError for a service that nobody could ever call; with a control plane, keys may be made later."""
    for name, service in services.items():
        if service.app_auth and not (service.app_codes or service.aws_credentials or service.keys):
            raise ConfigError(f"services.{name}.app_codes: app_auth is on, so at least one code is needed")
