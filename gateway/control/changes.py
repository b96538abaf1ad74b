"""Services made and changed: pure functions from a description to the next one."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway import rollout
from gateway.config import (
    NAME_PATTERN,
    CanaryConfig,
    ConfigError,
    KeyConfig,
    NodeConfig,
    ScalingConfig,
    ServiceConfig,
    convert,
)
from gateway.control.errors import Conflict, Invalid
from gateway.expiry import seconds_of

GONE = ("stopped", "stopping", "expired", "failed")
"""States from which a service can be started."""

FIXED = frozenset({"state", "reason", "expires_at", "keys", "canary", "owner"})
"""Fields that have calls of their own."""


def described(body: Any, where: str = "service") -> ServiceConfig:
    """The service that a body describes. Raises Invalid, which names the field."""
    try:
        return convert(body, ServiceConfig, where)
    except ConfigError as error:
        _, field, text = str(error).split(": ", 2)
        raise Invalid(text, field.removeprefix("(top level)")) from None


def check_name(name: Any) -> str:
    """A service's name. Raises Invalid."""
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        text = "expected letters, digits, '.', '_' and '-', at most 128, a letter or digit first"
        raise Invalid(text, "name")
    return name


def check_moment(moment: datetime | None, field: str) -> None:
    """Raise Invalid for a moment of which nobody knows in which part of the world it is."""
    if moment is not None and moment.tzinfo is None:
        raise Invalid("expected a moment with its offset from UTC, such as 2027-01-31T12:00:00Z", field)


def edited(service: ServiceConfig, fields: Mapping[str, Any]) -> ServiceConfig:
    """The service with other values for those fields; null makes a field what it is by default. Raises Invalid."""
    for name in fields:
        if name in FIXED:
            raise Invalid(f"{name} is not edited: there is a call of its own for it", name)
    table = {**msgspec.to_builtins(service), **fields}
    return described({name: value for name, value in table.items() if value is not None})


def started(
    service: ServiceConfig,
    at: datetime,
    *,
    duration: str | None = None,
    node: NodeConfig | None = None,
    nodes: int | None = None,
    scaling: ScalingConfig | None = None,
) -> ServiceConfig:
    """The service from its start on, with what is chosen anew. Raises Conflict if it runs, or Invalid."""
    if service.state not in GONE:
        raise Conflict(f"it is {service.state}: only a service that is stopped, expired or failed can be started")
    chosen = replace(
        service,
        state="running",
        reason="",
        duration=service.duration if duration is None else duration,
        node=node or service.node,
        nodes=service.nodes if nodes is None else nodes,
        scaling=scaling if scaling is not None or nodes is not None else service.scaling,
    )
    return with_expiry(described(msgspec.to_builtins(chosen)), at)


def stopped(service: ServiceConfig, reason: str = "") -> ServiceConfig:
    """The service once it takes no requests any more. Raises Conflict if it takes none already."""
    if service.state in GONE:
        raise Conflict(f"it is {service.state} already")
    return replace(service, state="stopped", reason=reason, expires_at=None)


def expired(service: ServiceConfig) -> ServiceConfig:
    """The service past its duration."""
    return replace(service, state="expired", reason="", expires_at=None)


def with_expiry(service: ServiceConfig, start: datetime) -> ServiceConfig:
    """The service with the moment at which it stops by itself, if it does."""
    seconds = seconds_of(service.duration)
    return replace(service, expires_at=start + timedelta(seconds=seconds) if seconds else None)


def lasting(service: ServiceConfig, duration: str, at: datetime) -> ServiceConfig:
    """The service with another duration, from its start if it runs: the new expiry must lie ahead. Raises Invalid."""
    changed = described({**msgspec.to_builtins(service), "duration": duration})
    if service.state in GONE:
        return changed
    begun = at
    if service.expires_at is not None:
        begun = service.expires_at - timedelta(seconds=seconds_of(service.duration))
    changed = with_expiry(changed, begun)
    if changed.expires_at is not None and changed.expires_at <= at:
        raise Invalid("the service has run for longer than that already", "duration")
    return changed


def with_canary(service: ServiceConfig, canary: CanaryConfig) -> ServiceConfig:
    """The service with that canary."""
    return replace(service, canary=canary)


def weighted(service: ServiceConfig, weight: Any) -> ServiceConfig:
    """The service whose canary gets that percentage. Raises Conflict or Invalid."""
    canary = _canary(service)
    if not isinstance(weight, int) or isinstance(weight, bool) or not 0 <= weight <= 100:
        raise Invalid(f"expected a whole number from 0 to 100, got {weight!r}", "weight")
    return replace(service, canary=replace(canary, weight=weight))


def taken_over(service: ServiceConfig) -> ServiceConfig:
    """The service whose canary has become the stable deployment. Raises Conflict."""
    return rollout.taken_over(service, _canary(service))


def without_canary(service: ServiceConfig) -> ServiceConfig:
    """The service whose canary is offline. Raises Conflict."""
    _canary(service)
    return replace(service, canary=None)


def _canary(service: ServiceConfig) -> CanaryConfig:
    if service.canary is None:
        raise Conflict("the service has no canary")
    return service.canary


# Keys...


def with_key(service: ServiceConfig, key: KeyConfig) -> ServiceConfig:
    """The service with one more key. Raises Conflict."""
    if any(known.id == key.id for known in service.keys):
        raise Conflict(f"there is a key {key.id!r} already", "id")
    return replace(service, keys=(*service.keys, key))


def key_of(service: ServiceConfig, key_id: str) -> KeyConfig:
    """That key. Raises Conflict."""
    found = next((key for key in service.keys if key.id == key_id), None)
    if found is None:
        raise Conflict(
            f"the service has no key {key_id[:128]!r}; it has: {', '.join(k.id for k in service.keys) or 'none'}"
        )
    return found


def with_changed_key(service: ServiceConfig, key: KeyConfig) -> ServiceConfig:
    """The service with that key in the place of the one with its id."""
    return replace(service, keys=tuple(key if known.id == key.id else known for known in service.keys))


def without_key(service: ServiceConfig, key_id: str) -> ServiceConfig:
    """The service without that key. Raises Conflict."""
    gone = key_of(service, key_id)
    return replace(service, keys=tuple(key for key in service.keys if key is not gone))


def kept_from(before: ServiceConfig | None, described_: ServiceConfig, table: Mapping[str, Any]) -> ServiceConfig:
    """The service as described, with the keys and the expiry that it has already, unless the table names them."""
    if before is None:
        return with_expiry(described_, datetime.now().astimezone()) if described_.expires_at is None else described_
    kept: dict[str, Any] = {} if "keys" in table else {"keys": before.keys}
    if "expires_at" not in table:
        kept["expires_at"] = before.expires_at if described_.duration == before.duration else None
    if "state" not in table:
        kept |= {"state": before.state, "reason": before.reason}
    if "app_codes" not in table:
        kept["app_codes"] = before.app_codes
    after = replace(described_, **kept)
    if "expires_at" not in table and described_.duration != before.duration:
        after = with_expiry(after, datetime.now().astimezone())
    return after
