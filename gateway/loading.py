"""A version's folder becomes a backend: the plugin that model.toml names, inside the wrappers it has tables for."""

import asyncio
import logging
import re
from time import perf_counter
from types import ModuleType
from typing import Any, cast

from gateway import plugins
from gateway.config import ConfigError, convert
from gateway.errors import GatewayError, LoadFailed, OutOfMemory
from gateway.interfaces import Backend, Device, ModelSource
from gateway.lifecycle import Loaded
from gateway.repository import SETTINGS_FILE, ModelFolder, VersionFolder

log = logging.getLogger("tensorgate.models")

_NO_MEMORY = re.compile(r"out of memory|failed to allocate memory|bad.?alloc|bfc_?arena", re.IGNORECASE)


async def load_version(model: ModelFolder, version: VersionFolder, device: Device) -> Loaded:
    """The version, warmed up and wrapped in the order of model.toml's tables. Raises what `reason` can tell."""
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


def reason(error: Exception) -> str:
    """What may be shown of a failed load; the rest is logged."""
    if isinstance(error, OutOfMemory | MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    if isinstance(error, GatewayError | ConfigError):
        return str(error)
    log.error("a backend failed to load a model", exc_info=error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the backend failed with {type(error).__name__}; the server's log says more"


def lacks_memory(failure: str) -> bool:
    """Whether a load failed, by its reason, for want of memory."""
    return _NO_MEMORY.search(failure) is not None


def _prepare(model: str, name: str, table: dict[str, Any], exports: str) -> tuple[ModuleType, Any]:
    """The plugin's module and its table as the plugin's own Config; imports, so it runs in a thread."""
    where = f"{model}/{SETTINGS_FILE}"
    try:
        module = plugins.load("backends", name, exports)
    except ConfigError as error:
        raise ConfigError(f"{where}: {'backend' if exports == 'load' else name}: {error}") from None
    return module, convert(table, module.Config, f"{where}: {name}")
