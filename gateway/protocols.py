"""Which protocols are on, and with which settings: the gateway's, and those of services that have their own."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gateway import plugins
from gateway.config import Config, ConfigError, convert
from gateway.interfaces import Adapter, DecodeLimits


def load_adapters(config: Config) -> Mapping[str, Adapter]:
    """The protocols that are on, each with its own table of the configuration."""
    chosen = config.gateway.protocols
    names = plugins.names("adapters") if chosen == "all" else chosen
    _refuse_others("", config.protocols, names)
    return {name: _adapter(name, config, config.protocols.get(name, {}), "") for name in names}


def load_own_adapters(config: Config, adapters: Collection[str]) -> Mapping[tuple[str, str], Adapter]:
    """The adapters of services with tables of their own, by service and protocol."""
    own = {}
    for service, table in config.services.items():
        where = f"services.{service}."
        _refuse_others(where, table.protocols, adapters)
        for name, settings in table.protocols.items():
            own[service, name] = _adapter(name, config, config.protocols.get(name, {}) | settings, where)
    return own


def _adapter(name: str, config: Config, table: dict[str, Any], where: str) -> Adapter:
    module = plugins.load("adapters", name, "create")
    limits = DecodeLimits(config.limits.elements, config.limits.json_depth)
    adapter: Adapter = module.create(convert(table, module.Config, f"{where}protocols.{name}"), limits)
    return adapter


def _refuse_others(where: str, tables: Iterable[str], names: Collection[str]) -> None:
    for name in tables:
        if name not in names:
            raise ConfigError(f"{where}protocols.{name}: this protocol is not on; there are: {', '.join(names)}")
