"""The configuration file is a seed: when it has changed since it was last applied, the services it names are applied.

Others stay, unless `prune` is set. What people have changed since by API stays too, until the file changes.
"""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from gateway import keys
from gateway.config import Config, KeyConfig, ServiceConfig
from gateway.control import changes
from gateway.control.plans import Change, plan, told
from gateway.control.store import NewEvent, Store, now

SETTING = "seed"
ACTOR = "file"
NOTE = "the configuration file has changed"
_FROM_FILE = "file-"


def digest(services: Mapping[str, ServiceConfig]) -> str:
    """What tells one file from another."""
    return hashlib.sha256(msgspec.json.encode(services, order="deterministic")).hexdigest()


def drift(store: Store, config: Config) -> tuple[Change, ...]:
    """How what is served differs from what the file says of the services it names."""
    head = store.head().services
    named = {name: head[name] for name in config.services if name in head}
    return plan({name: _bare(one) for name, one in named.items()}, {n: _bare(s) for n, s in config.services.items()})


def sow(store: Store, config: Config) -> tuple[Change, ...]:
    """Apply the file, if it has changed; returns what that has changed."""
    seed = digest(config.services)
    if store.setting(SETTING) == seed:
        return ()
    before = store.head().services
    after = sown(before, config.services, config.gateway.prune)
    found = plan(before, after)
    if found:
        store.commit(after, ACTOR, NOTE, seeded(found))
    store.set(SETTING, seed)
    return found


def seeded(found: Iterable[Change]) -> list[NewEvent]:
    """What is remembered of what the file has changed."""
    return [NewEvent("seed", one.service, told(one)) for one in found]


def sown(
    before: Mapping[str, ServiceConfig], file: Mapping[str, ServiceConfig], prune: bool
) -> dict[str, ServiceConfig]:
    """What the services become by the file."""
    kept = {} if prune else before
    return {**kept, **{name: _sown(one, before.get(name)) for name, one in file.items()}}


def _sown(service: ServiceConfig, before: ServiceConfig | None) -> ServiceConfig:
    """As the file has it; codes become hashes, and the keys that were made by API stay."""
    made = tuple(key for key in before.keys if not key.id.startswith(_FROM_FILE)) if before else ()
    codes = service.app_codes if isinstance(service.app_codes, tuple) else ()
    own = tuple(KeyConfig(f"{_FROM_FILE}{number}", keys.chosen(code)) for number, code in enumerate(codes, 1))
    sown = replace(service, app_codes=() if codes else service.app_codes, keys=(*service.keys, *own, *made))
    if sown.state != "running" or not sown.duration or sown.expires_at is not None:
        return sown
    return changes.with_expiry(sown, now())


def _bare(service: ServiceConfig) -> ServiceConfig:
    """Without what a store adds, so that a file and what was made of it are alike."""
    return replace(service, app_codes=(), keys=(), expires_at=None, state="running", reason="")
