"""The supervisor's eye on the models folders: what has changed there becomes changes of every process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.changes import Changes
from gateway.config import Config
from gateway.orders import Change
from gateway.repository import ModelFolder, Scan, scan, settle

log = logging.getLogger("tensorgate.models")


async def follow(
    config: Config,
    base: Path,
    roots: tuple[Path, ...],
    changes: Changes,
    started: Callable[[], Awaitable[None]],
) -> None:
    """Have every process load what is there, call `started`, and follow the folders until cancelled.

    Raises ConfigError if a root cannot be read at the start.
    """
    single = {name: base / folder for name, folder in config.models.items()}
    found = await asyncio.to_thread(scan, roots, None, single)
    _warn(found, Scan({}, {}, frozenset()))
    known = frozenset(found.models | dict.fromkeys(found.unread))
    folders = dict(found.models)
    first = Change(models=dict(folders), problems=found.problems, awaited=tuple(sorted(known)))
    if not await changes.first(first):
        for change in _changes({}, folders, found, found, known):
            await changes.models(change)
    await started()
    while True:
        await asyncio.sleep(config.gateway.poll_seconds)
        before = found
        try:
            found = await asyncio.to_thread(scan, roots, before, single)
            _warn(found, before)
            settled = settle(folders, before, found)
            for change in _changes(folders, settled, found, before, known):
                await changes.models(change)
            folders = settled
        except Exception:
            log.exception("the models folders could not be looked at")


def _changes(
    folders: dict[str, ModelFolder], settled: dict[str, ModelFolder], found: Scan, before: Scan, known: frozenset[str]
) -> list[Change]:
    """One for each model, so that one that cannot be loaded concerns no other."""
    awaited = tuple(sorted(known & (settled.keys() | found.unread)))
    names = [name for name in sorted(folders.keys() | settled.keys()) if folders.get(name) != settled.get(name)]
    made = [Change(models={name: settled.get(name)}, problems=found.problems, awaited=awaited) for name in names]
    if not made and (found.problems != before.problems or found.unread != before.unread):
        made.append(Change(models={}, problems=found.problems, awaited=awaited))
    return made


def _warn(found: Scan, before: Scan) -> None:
    for name, problem in found.problems.items():
        if before.problems.get(name) != problem:
            log.warning("%s: %s", name, problem)
