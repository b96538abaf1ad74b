"""What the services ask of their models: how many nodes, and which settings over those of model.toml."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.canary import CANARY
from gateway.config import ConfigError, ModelConfig, NodeConfig, ServiceConfig
from gateway.deployments import deployments
from gateway.interfaces import Backend, Scalable
from gateway.repository import ModelFolder

OWN_WORKERS, OWN_SERVER, POOL = "pyclass", "custom", "pool"
"""Backends that have processes of their own anyway, and the table of model.toml for workers around any other."""
_THREADED = frozenset({"ort", "generate", "embed", "diffusion"})
"""Backends with a key `threads`."""


class Need(Struct, frozen=True):
    """What is asked of one model."""

    nodes: int = 1
    """In all."""
    scales: bool = False
    """Whether there may be more or fewer of them at any time."""
    node: NodeConfig = NodeConfig()
    environment: Mapping[str, str] = {}
    parameters: Mapping[str, Any] = {}

    @property
    def settings(self) -> tuple[Any, ...]:
        """What a model must be loaded anew for."""
        return (self.nodes > 1 or self.scales, self.node, dict(self.environment), dict(self.parameters))


NOTHING = Need()


def needs(services: Mapping[str, ServiceConfig], nodes: Mapping[str, int]) -> dict[str, Need]:
    """By model; `nodes` has those of deployments whose load decides. Services of one model share its nodes.

    Raises ConfigError where two of them ask for other settings of it.
    """
    found: dict[str, tuple[str, Need]] = {}
    most: dict[str, int] = {}
    for where, model, need in _asked(services, nodes):
        most[model] = max(need.nodes, most.get(model, 0))
        if model not in found:
            found[model] = (where, need)
            continue
        other, before = found[model]
        if _own(before) and _own(need) and _own(before) != _own(need):
            text = f"it shares the model {model!r} with {other}, so environment, parameters and node must be the same"
            raise ConfigError(f"{where}: {text}")
        found[model] = (other, _joined(before, need))
    # Services that ask for one node each ask for nothing that the gateway's own process could not do.
    return {
        model: replace(need, nodes=1) if need.nodes > 1 >= most[model] and not need.scales else need
        for model, (_, need) in found.items()
    }


def _asked(services: Mapping[str, ServiceConfig], nodes: Mapping[str, int]) -> Iterator[tuple[str, str, Need]]:
    for name, service in services.items():
        if (
            service.canary is not None
            and service.canary.scaling
            and service.canary.model in ("", service.model or name)
        ):
            text = "only a canary of another model has nodes of its own"
            raise ConfigError(f"services.{name}.canary.scaling: {text}")
    for one in deployments(services):
        service = services[one.service]
        where = f"services.{one.service}" + (".canary" if one.variant == CANARY else "")
        count = nodes.get(one.name, max(1, one.scaling.min)) if one.scaling is not None else one.nodes
        need = Need(count, one.scaling is not None, service.node, service.environment, service.parameters)
        yield where, one.model, need


def _own(need: Need) -> tuple[Any, ...] | None:
    """The settings, if there are any."""
    told = (need.node, dict(need.environment), dict(need.parameters))
    return told if told != (NodeConfig(), {}, {}) else None


def _joined(one: Need, other: Need) -> Need:
    settings = one if _own(one) else other
    return replace(settings, nodes=one.nodes + other.nodes, scales=one.scales or other.scales)


MARK = "+"
"""Between a version's fingerprint on disk and that of what is asked of it."""


def on_disk(fingerprint: str) -> str:
    """The fingerprint without what is asked of the version."""
    return fingerprint.partition(MARK)[0]


def asked_of(folder: ModelFolder, need: Need) -> ModelFolder:
    """The model as it is to be loaded; another fingerprint where it must be loaded anew."""
    if need.settings == NOTHING.settings:
        return folder
    config = _configured(folder.config, need)
    mark = hashlib.blake2b(repr(need.settings).encode(), digest_size=6).hexdigest()
    versions = {
        number: replace(version, fingerprint=f"{version.fingerprint}{MARK}{mark}")
        for number, version in folder.versions.items()
    }
    return replace(folder, config=config, versions=versions)


def _configured(config: ModelConfig, need: Need) -> ModelConfig:
    tables = {name: dict(table) for name, table in config.plugins.items()}
    own = tables.setdefault(config.backend, {})
    if need.environment and config.backend in (OWN_WORKERS, OWN_SERVER):
        own["environment"] = {**own.get("environment", {}), **need.environment}
    if need.parameters and config.backend == OWN_SERVER:
        own["parameters"] = {**own.get("parameters", {}), **need.parameters}
    if need.node.threads and config.backend in _THREADED:
        own["threads"] = need.node.threads
    workers = own if config.backend == OWN_WORKERS else tables.get(POOL, {})
    if config.backend != OWN_SERVER and (config.backend == OWN_WORKERS or config.placement != "inline"):
        workers["replicas"] = max(1, need.nodes)
        if need.node.memory_mib:
            workers["memory_mb"] = need.node.memory_mib
        if config.backend != OWN_WORKERS:
            tables[POOL] = workers
            config = replace(config, placement="pool")
    if not own and config.backend not in config.plugins:
        del tables[config.backend]
    return replace(config, plugins=tables)


def scalable(backend: Backend) -> Scalable | None:
    """What of it has nodes: itself, or what it wraps."""
    inner: Any = backend
    while inner is not None:
        if isinstance(inner, Scalable):
            return inner
        inner = getattr(inner, "inner", None)
    return None
