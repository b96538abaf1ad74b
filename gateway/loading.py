"""A version's folder becomes a backend: the plugin that model.toml names, inside the wrappers it has tables for."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, cast

import msgspec
from msgspec import Struct

from gateway import plugins
from gateway.batching.batched import batched
from gateway.config import ConfigError, ModelConfig, bytes_of, convert
from gateway.errors import GatewayError, LoadFailed, OutOfMemory
from gateway.interfaces import Backend, Device, ModelSource
from gateway.lifecycle import Failure, Loaded
from gateway.modelcost import Claim
from gateway.repository import FINGERPRINT_FILES, SETTINGS_FILE, ModelFolder, VersionFolder
from gateway.residency import ModelMemory

POOL = "pool"
"""The table of model.toml for the workers, and the module that has them."""
HOSTED = "hosted"
"""The module for what has its workers in another process that has those of all."""

_NO_MEMORY = "out of memory"

log = logging.getLogger("tensorgate.models")


class Order(Struct, frozen=True):
    """A version, and the tables of model.toml that say how it is opened; a worker gets it as JSON."""

    source: ModelSource
    backend: str
    tables: dict[str, dict[str, Any]]


class Hosted(Struct, frozen=True):
    """An order to the process that has the workers of all."""

    order: Order
    in_workers: bool
    """Whether there must be workers around the backend."""
    fingerprint: str
    """Of what lies there: what has changed is another backend."""


async def load_version(
    model: ModelFolder,
    version: VersionFolder,
    device: Device,
    output: Path | None = None,
    memory: ModelMemory | None = None,
    pools: Path | None = None,
) -> Loaded:
    """The version, warmed up, here or in workers as model.toml places it. Raises what `shown` can tell.

    With a `memory`, it comes and goes as that has room. Workers are had from the process at `pools`, if given.
    """
    started = perf_counter()
    if version.problem:
        raise LoadFailed(version.problem)
    config = model.config
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
    order = Order(source, config.backend, config.plugins)
    make = functools.partial(_make, order, config, version.fingerprint, pools)
    if memory is None:
        backend = await make()
    else:
        # What is imported stays, so it must not count as the model's.
        await asyncio.to_thread(_module, model.name, config.backend, "load")
        files = await asyncio.to_thread(_file_bytes, version.directory)
        claim = Claim(model.name, version.version, files, bytes_of(config.memory), config.pinned, config.backend)
        backend = await memory.admit(claim, make)
    try:
        seconds = perf_counter() - started
        return Loaded(version.version, backend, version.fingerprint, seconds, config.response)
    except BaseException:
        await backend.close()
        raise


async def _make(order: Order, config: ModelConfig, fingerprint: str, pools: Path | None) -> Backend:
    """The backend, wherever it runs. Raises GatewayErrors only, fit to be shown."""
    try:
        in_workers = await asyncio.to_thread(_in_workers, order.source, config, pools is not None)
        if pools is not None and (in_workers or await asyncio.to_thread(_has_processes, order)):
            backend = await _join(Hosted(order, in_workers, fingerprint), pools)
        else:
            backend = await (_host(order) if in_workers else _open(order))
        try:
            return await batched(backend, config.batching)
        except BaseException:
            await backend.close()
            raise
    except Exception as error:
        raise shown(error) from None


def _file_bytes(directory: Path) -> int:
    """The size of the version's files, as far as they can be seen."""
    size = 0
    for path in islice(directory.rglob("*"), FINGERPRINT_FILES):
        with contextlib.suppress(OSError):
            size += path.stat().st_size if path.is_file() else 0
    return size


async def fulfil(told: dict[str, Any]) -> Backend:
    """In a worker: the backend that the gateway has ordered. Raises LoadFailed or OutOfMemory."""
    return await _fulfilled(lambda: _open(msgspec.convert(told, Order, dec_hook=_path)))


async def fulfil_hosted(told: dict[str, Any]) -> Backend:
    """In the process that has the workers of all: the backend and its workers. Raises LoadFailed or OutOfMemory."""

    async def opened() -> Backend:
        hosted = msgspec.convert(told, Hosted, dec_hook=_path)
        return await (_host(hosted.order) if hosted.in_workers else _open(hosted.order))

    return await _fulfilled(opened)


def _path(_: type[Any], name: str) -> Path:
    return Path(name)


async def _fulfilled(opened: Callable[[], Awaitable[Backend]]) -> Backend:
    try:
        return await opened()
    except (LoadFailed, OutOfMemory):
        raise
    except MemoryError as error:
        raise OutOfMemory(str(error) or "there is not enough for this model") from None
    except Exception as error:
        raise shown(error) from None


async def _host(order: Order) -> Backend:
    """The version in workers, where it is opened as it would be here."""
    module, options = await asyncio.to_thread(_prepare, order.source.name, POOL, order.tables.get(POOL, {}), "host")
    tables = {name: table for name, table in order.tables.items() if name != POOL}
    told = msgspec.to_builtins(msgspec.structs.replace(order, tables=tables), enc_hook=str)
    return cast(Backend, await module.host(order.source, told, options))


async def _join(hosted: Hosted, pools: Path) -> Backend:
    """The version with its workers in the process that has those of all."""
    module = await asyncio.to_thread(plugins.load, "backends", HOSTED, "join")
    source = hosted.order.source
    told = msgspec.to_builtins(hosted, enc_hook=str)
    return cast(Backend, await module.join(f"{source.name} version {source.version}", pools, told))


def _has_processes(order: Order) -> bool:
    """Whether the backend itself starts processes; imports, so it runs in a thread."""
    module = _module(order.source.name, order.backend, "load")
    key = getattr(module, "OWN_SERVER_KEY", None)
    return getattr(module, "OWN_WORKERS", False) or key in order.tables.get(order.backend, {})


async def _open(order: Order) -> Backend:
    """The backend, wrapped in the order of model.toml's tables."""
    source, name = order.source, order.backend
    tables = {name: order.tables.get(name, {})} | order.tables
    prepared = {
        one: await asyncio.to_thread(_prepare, source.name, one, table, "load" if one == name else "wrap")
        for one, table in tables.items()
    }
    module, options = prepared.pop(name)
    backend = cast(Backend, await module.load(source, options))
    try:
        for module, options in prepared.values():
            backend = module.wrap(backend, options, source)
        return backend
    except BaseException:
        await backend.close()
        raise


def _in_workers(source: ModelSource, config: ModelConfig, many: bool) -> bool:
    """Whether the gateway must put workers around the backend, being one of `many` processes; imports: in a thread."""
    where, auto = f"{source.name}/{SETTINGS_FILE}", config.placement == "auto"
    module = _module(source.name, config.backend, "load") if many or not auto else None
    has_own = not auto and getattr(module, "OWN_WORKERS", False)
    shared = getattr(module, "shared", None) if many and auto else None
    if config.placement == "inline" and has_own:
        raise ConfigError(
            f'{where}: placement: {config.backend!r} runs in workers of its own, never inline; use "auto" or "pool"'
        )
    in_workers = (shared is not None and shared(source.device)) or (config.placement == "pool" and not has_own)
    if POOL in config.plugins and not in_workers:
        hint = f"put its keys into [{config.backend}]" if has_own else 'it goes with placement = "pool"'
        raise ConfigError(f"{where}: pool: there is no pool around this model; {hint}")
    return in_workers


def shown(error: Exception) -> Failure:
    """What may be shown of a failed load; the rest is logged."""
    if isinstance(error, OutOfMemory | MemoryError):
        text = str(error)
        return OutOfMemory(text if text.startswith(_NO_MEMORY) else f"{_NO_MEMORY}: {text}" if text else _NO_MEMORY)
    if isinstance(error, GatewayError | ConfigError):
        return LoadFailed(str(error))
    log.error("a backend failed to load a model", exc_info=error)
    if isinstance(error, OSError) and error.strerror:
        return LoadFailed(error.strerror)
    return LoadFailed(f"the backend failed with {type(error).__name__}; the server's log says more")


def _prepare(model: str, name: str, table: dict[str, Any], exports: str) -> tuple[ModuleType, Any]:
    """The plugin's module and its table as the plugin's own Config; imports, so it runs in a thread."""
    module = _module(model, name, exports)
    return module, convert(table, module.Config, f"{model}/{SETTINGS_FILE}: {name}")


def _module(model: str, name: str, exports: str) -> ModuleType:
    try:
        return plugins.load("backends", name, exports)
    except ConfigError as error:
        where = f"{model}/{SETTINGS_FILE}: {'backend' if exports == 'load' else name}"
        raise ConfigError(f"{where}: {error}") from None
