"""From a call to the service it means, and from the service to the version that answers."""

import re
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from gateway.config import CanaryConfig, Config, ConfigError, ServiceConfig, ServiceState, ShadowConfig
from gateway.errors import LabelNotFound, ModelNotFound, ModelNotReady
from gateway.lifecycle import Loaded
from gateway.models import LoadedModel, Models
from gateway.paths import Route
from gateway.types import Call, ModelStatus, Target

_LISTED = 12
"""Names shown in an error."""


class Deployment(Struct, frozen=True):
    """The second set of answers that a service may have."""

    model: str
    version: int | None
    weight: int
    shadow: ShadowConfig


class Service(Struct, frozen=True):
    """What a client calls by name."""

    name: str
    model: str
    type: str
    protected: bool
    aliases: tuple[str, ...]
    version: int | None = None
    """The model's, for calls that name none; None for the latest."""
    canary: Deployment | None = None
    state: ServiceState = "running"
    reason: str = ""
    expires: float | None = None
    """By the steady clock."""

    def carries(self, protocol: str) -> bool:
        """Whether calls of this protocol may reach the service."""
        return self.type in ("any", protocol)

    def answers_to(self, name: str) -> bool:
        """Whether a path under the service's own prefix may name it so."""
        return name in (self.name, self.model) or name in self.aliases


class Directory:
    """All services: the configured ones, and each model that none of them names."""

    def __init__(self, config: Config, models: Models, expiries: Mapping[str, float] = MappingProxyType({})) -> None:
        self._models = models
        self._default = config.default_service
        self._host = _host_pattern(config.gateway.hosts)
        self._configured = {name: _service(name, table, expiries.get(name)) for name, table in config.services.items()}
        self._named_models = frozenset(
            model
            for service in self._configured.values()
            for model in (service.model, service.canary.model if service.canary else service.model)
        )
        self._by_name = dict(self._configured)
        for service in self._configured.values():
            for alias in service.aliases:
                if alias in self._by_name:
                    raise ConfigError(f"services.{service.name}.aliases: {alias!r} is taken")
                self._by_name[alias] = service

        self.has_custom = any(service.type == "custom" for service in self._configured.values())
        """Whether a custom service may be meant by a call that has no prefix."""

    def names(self) -> list[str]:
        """The configured services' names and aliases."""
        return list(self._by_name)

    def get(self, name: str) -> Service | None:
        """The service of that name or alias."""
        service = self._by_name.get(name)
        if service is None and name not in self._named_models and self._models.get(name) is not None:
            return self._unnamed(name)
        return service

    def _unnamed(self, name: str) -> Service:
        """The service of a model that no service names."""
        model = self._models.get(name)
        is_server = model is not None and model.latest is not None and "upstream" in model.latest.metadata.extras
        return _of_model(name, is_server)

    def custom(self, call: Call, named: str | None) -> Service | None:
        """The custom service that the prefix's name, or else the call's head, means, if it is one."""
        name = named if named is not None else self._hint(call)
        service = self.get(name) if name is not None else None
        return service if service is not None and service.type == "custom" else None

    def serves(self, name: str) -> bool:
        """Whether a service of that name answers."""
        service = self.get(name)
        model = self.model(service) if service else None
        return model is not None and model.latest is not None

    def taken(self, name: str) -> bool:
        """Whether the configuration gives that name to a service, or to a model that only its service shows."""
        return name in self._by_name or name in self._named_models

    def __iter__(self) -> Iterator[Service]:
        yield from self._configured.values()
        for name in self._models.names():
            if name not in self._named_models and name not in self._configured:
                yield self._unnamed(name)

    def reachable(self, route: Route, call: Call) -> list[Service]:
        """The services that a call may mean, as far as path and headers tell; never empty while there are services."""
        named = route.service or (unquote(route.params["model"]) if "model" in route.params else self._hint(call))
        service = self.get(named) if named else None
        if service is not None:
            return [service]
        return [service for service in self if service.carries(route.protocol)] or list(self)

    def find(self, route: Route, call: Call, target: Target) -> Service:
        """The service that is meant. Raises ModelNotFound or, for a label on an unknown model, LabelNotFound."""
        if route.service is not None:
            service = self._require(route.service, route.protocol, target)
            if target.model is not None and not service.answers_to(target.model):
                raise _not_found(target.model, target, f"the service {service.name} has no model {target.model!r}")
            return service
        if target.model is not None:
            return self._require(target.model, route.protocol, target)
        hint = self._hint(call)
        if hint is not None:
            return self._require(hint, route.protocol, target)
        if target.named:
            raise _not_found("", target, f"the call names no service{self._known(route.protocol)}")
        return self._only(route, target)

    def _hint(self, call: Call) -> str | None:
        """The service that the Host header, or else X-Tensorgate-Service, names."""
        if self._host is not None:
            match = self._host.fullmatch((call.header(b"host") or "").lower().partition(":")[0])
            if match is not None:
                return match["service"]
        return call.header(b"x-tensorgate-service")

    def _require(self, name: str, protocol: str, target: Target) -> Service:
        service = self.get(name)
        if service is None:
            raise _not_found(name, target, f"there is no service {name[:128]!r}{self._known(protocol)}")
        if not service.carries(protocol):
            raise _not_found(name, target, f"the service {service.name} answers {service.type} calls only")
        return service

    def _only(self, route: Route, target: Target) -> Service:
        default = self.get(self._default) if self._default else None
        if default is not None and self._answers(default, route):
            return default
        able = [service for service in self if self._answers(service, route)]
        if len(able) == 1:
            return able[0]
        raise _not_found(
            "",
            target,
            "the path names no service and there is not just one: put /services/NAME before the path, "
            f"or send the header X-Tensorgate-Service{self._known(route.protocol)}",
        )

    def _answers(self, service: Service, route: Route) -> bool:
        """Whether a call that names no service may mean this one."""
        fits = route.operation.fits
        if not service.carries(route.protocol) or fits is None:
            return service.carries(route.protocol)
        model = self.model(service)
        return model is not None and model.latest is not None and fits(model.latest.metadata)

    def _known(self, protocol: str) -> str:
        names = sorted(service.name for service in self if service.carries(protocol) and not service.protected)
        shown = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
        return f"; there are: {shown}" if names else ""

    def model(self, service: Service) -> LoadedModel | None:
        """The service's model, if it is known."""
        return self._models.get(service.model)

    def versions(self, service: Service) -> tuple[int, ...]:
        """The versions of the service's model that answer, oldest first."""
        model = self.model(service)
        return tuple(sorted(model.versions)) if model else ()

    def statuses(self, route: Route, opened: Container[str]) -> Iterator[ModelStatus]:
        """How the models stand whose services need no key or are `opened`, in the services' names."""
        for service in self:
            model = self.model(service) if service.state == "running" else None
            open_ = not service.protected or service.name in opened
            if model and open_ and service.carries(route.protocol) and route.service in (None, service.name):
                yield told(model, service.name, service.aliases)

    def hinted(self, route: Route, call: Call) -> Service | None:
        """The service that the call's prefix, host or header names."""
        name = route.service or self._hint(call)
        return self.get(name) if name is not None else None

    def ready(self, route: Route, call: Call) -> bool:
        """Whether the service that the call names takes requests; without a name, whether all models do."""
        name = route.service or self._hint(call)
        if name is None:
            return self._models.ready
        service = self.get(name)
        model = self.model(service) if service else None
        return model is not None and model.latest is not None and model.latest.backend.status.ready

    def pick(self, service: Service, target: Target) -> Loaded:
        """The version that answers. Raises ModelNotFound, LabelNotFound or ModelNotReady, in the client's words."""
        name = target.model or service.name
        unnamed = target.version is None and target.label is None
        version = service.version if unnamed else target.version
        try:
            return self._models.resolve(service.model, version, target.label)
        except LabelNotFound as error:
            raise LabelNotFound(str(error), name, error.label) from None
        except ModelNotFound as error:
            raise ModelNotFound(str(error), name, target.version) from None
        except ModelNotReady as error:
            raise ModelNotReady(str(error), name, target.version) from None

    def pick_canary(self, canary: Deployment) -> Loaded:
        """The canary's version. Raises ModelNotFound or ModelNotReady."""
        return self._models.resolve(canary.model, canary.version)


def told(model: LoadedModel, name: str, aliases: tuple[str, ...] = ()) -> ModelStatus:
    """How the model stands, under a service's name."""
    metadata = model.latest.metadata if model.latest else None
    unready = tuple(number for number, one in model.versions.items() if not one.backend.status.ready)
    return replace(model.status, name=name, metadata=metadata, aliases=aliases, unready=unready)


@lru_cache(4096)
def _of_model(name: str, is_server: bool) -> Service:
    return Service(name, name, "custom" if is_server else "any", False, ())


def _not_found(name: str, target: Target, text: str) -> ModelNotFound:
    if target.label is not None:
        return LabelNotFound(text, name, target.label)
    return ModelNotFound(text, name, target.version)


def _service(name: str, table: ServiceConfig, expires: float | None) -> Service:
    model = table.model or name
    return Service(
        name, model, table.type, table.app_auth, table.aliases, table.model_version or None,
        _deployment(model, table.canary), table.state, table.reason, expires,
    )  # fmt: skip


def _deployment(model: str, canary: CanaryConfig | None) -> Deployment | None:
    if canary is None:
        return None
    return Deployment(canary.model or model, canary.model_version or None, canary.weight, canary.shadow)


def _host_pattern(hosts: str) -> re.Pattern[str] | None:
    if not hosts:
        return None
    before, field, after = hosts.lower().partition("{service}")
    if not field:
        raise ConfigError(f"gateway.hosts: expected {{service}} in it, as in '{{service}}.example.com', got {hosts!r}")
    return re.compile(f"{re.escape(before)}(?P<service>[a-z0-9][a-z0-9._-]*){re.escape(after)}")
