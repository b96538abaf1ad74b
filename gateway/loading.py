"""A version's folder becomes a backend: the plugin that model.toml names, inside the wrappers it has tables for."""

import asyncio
import logging
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, cast

from gateway import plugins
from gateway.config import ConfigError, convert
from gateway.errors import GatewayError, LoadFailed, OutOfMemory
from gateway.interfaces import Backend, Device, ModelSource
from gateway.lifecycle import Failure, Loaded
from gateway.repository import SETTINGS_FILE, ModelFolder, VersionFolder

log = logging.getLogger("tensorgate.models")


async def load_version(
    model: ModelFolder, version: VersionFolder, device: Device, output: Path | None = None
) -> Loaded:
    """The version, warmed up and wrapped in the order of model.toml's tables. Raises what `shown` can tell."""
    started = perf_counter()
    if version.problem:
        raise LoadFailed(version.problem)
    config = model.config
    tables = {config.backend: config.plugins.get(config.backend, {})} | config.plugins
    prepared = {
        name: await asyncio.to_thread(_prepare, model.name, name, table, "load" if name == config.backend else "wrap")
        for name, table in tables.items()
    }
    source = ModelSource(
        name=model.name,
        version=version.version,
        directory=version.directory,
        # A version may be a link to a folder that lies beside the model, yet inside the models folder.
        root=model.directory if version.directory.is_relative_to(model.directory) else version.directory,
        signatures=config.signatures,
        device=device,
        output=output,
    )
    module, options = prepared.pop(config.backend)
    backend = cast(Backend, await module.load(source, options))
    try:
        for module, options in prepared.values():
            backend = module.wrap(backend, options, source)
        seconds = perf_counter() - started
        return Loaded(version.version, backend, version.fingerprint, seconds, config.response)
    except BaseException:
        await backend.close()
        raise


def shown(error: Exception) -> Failure:
    """What may be shown of a failed load; the rest is logged."""
    if isinstance(error, OutOfMemory | MemoryError):
        return OutOfMemory(f"out of memory: {error}" if str(error) else "out of memory")
    if isinstance(error, GatewayError | ConfigError):
        return LoadFailed(str(error))
    log.error("a backend failed to load a model", exc_info=error)
    if isinstance(error, OSError) and error.strerror:
        return LoadFailed(error.strerror)
    return LoadFailed(f"the backend failed with {type(error).__name__}; the server's log says more")


def _prepare(model: str, name: str, table: dict[str, Any], exports: str) -> tuple[ModuleType, Any]:
    """The plugin's module and its table as the plugin's own Config; imports, so it runs in a thread."""
    where = f"{model}/{SETTINGS_FILE}"
    try:
        module = plugins.load("backends", name, exports)
    except ConfigError as error:
        raise ConfigError(f"{where}: {'backend' if exports == 'load' else name}: {error}") from None
    return module, convert(table, module.Config, f"{where}: {name}")
