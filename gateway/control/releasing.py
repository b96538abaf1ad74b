"""The API's endpoints for a service's canary, its keys and its scaling."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway import keys
from gateway.canary import CANARY, STABLE
from gateway.config import CanaryConfig, KeyConfig, KeyLimitsConfig, ScalingConfig, ServiceConfig
from gateway.control import changes
from gateway.control.endpoint import Ask, Endpoint, Reply
from gateway.control.errors import Conflict, Invalid, NotFound
from gateway.control.packages import check_package
from gateway.control.scaling import Decision, simulate
from gateway.control.store import now
from gateway.control.views import edited_by, key_view
from gateway.expiry import seconds_of
from gateway.serviceconfig import KeyScope, Name

MOST_LOOKS = 100_000


class Weight(Struct, frozen=True, forbid_unknown_fields=True):
    """The canary's percentage of the requests."""

    weight: int


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to be made. Without `code` one is generated, which is better."""

    id: Name
    name: str = ""
    scopes: tuple[KeyScope, ...] = ()
    limits: KeyLimitsConfig | None = None
    expires_at: datetime | None = None
    code: str = ""


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """How a key is replaced by a new one."""

    overlap: str = "24h"
    """How long both open, as 30m, 24h or 7d; 0s for not at all."""


class KeyShown(Struct, frozen=True):
    """A key that was just made: its code is never shown again."""

    code: str
    key: dict[str, Any]


class Keys(Struct, frozen=True):
    """The keys of a service."""

    app_auth: bool
    keys: tuple[dict[str, Any], ...]


class Simulation(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule, and a series of loads to try it on."""

    scaling: ScalingConfig
    series: tuple[tuple[float, dict[str, float]], ...]
    """Seconds, and the metrics at that moment."""
    nodes: int = 1


# Canary...


async def _publish(ask: Ask) -> Reply:
    name, _ = ask.service("canary")
    canary: CanaryConfig = ask.body

    def publish(service: ServiceConfig) -> ServiceConfig:
        changed = changes.with_canary(service, canary)
        check_package(ask.control, name, changed)
        return changed

    package = canary.model or "its own model"
    text = f"{name} has a canary: {package} as version {canary.version}, weight {canary.weight}"
    return await edited_by(ask, publish, "canary", text, weight=canary.weight)


async def _weigh(ask: Ask) -> Reply:
    name, _ = ask.service("canary")
    weight = ask.body.weight
    return await edited_by(
        ask, lambda one: changes.weighted(one, weight), "weight", f"the canary of {name} gets {weight} %", weight=weight
    )


async def _take_over(ask: Ask) -> Reply:
    name, _ = ask.service("canary")
    return await edited_by(ask, changes.taken_over, "takeover", f"the canary of {name} has taken over")


async def _take_offline(ask: Ask) -> Reply:
    name, _ = ask.service("canary")
    return await edited_by(ask, changes.without_canary, "offline", f"the canary of {name} is offline")


# Keys...


async def _keys(ask: Ask) -> Keys:
    _, service = ask.service("operate")
    return Keys(service.app_auth, tuple(key_view(key) for key in service.keys))


async def _new_key(ask: Ask) -> Reply:
    name, _ = ask.service("operate")
    wanted: NewKey = ask.body
    changes.check_moment(wanted.expires_at, "expires_at")
    code, hashed = await _hashed(wanted.code)
    key = KeyConfig(wanted.id, hashed, wanted.name, wanted.scopes, limits=wanted.limits, expires_at=wanted.expires_at)
    text = f"{name} has the key {key.id}"
    await ask.control.edit(ask.user.name, name, lambda one: changes.with_key(one, key), "key", text)
    return Reply(KeyShown(code, key_view(key)), 201)


async def _rotate(ask: Ask) -> Reply:
    name, _ = ask.service("operate")
    key_id, overlap = ask.params["key"], ask.body.overlap
    try:
        seconds = seconds_of(changes.described({"duration": overlap}).duration)
    except Invalid as error:
        raise Invalid(str(error), "overlap") from None
    code, hashed = await _hashed("")

    def rotate(service: ServiceConfig) -> ServiceConfig:
        old = _found(service, key_id)
        new = replace(old, id=_next_id(service, key_id), hash=hashed, expires_at=None, revoked=False)
        ends = now() + timedelta(seconds=seconds)
        ending = replace(old, expires_at=min(old.expires_at, ends) if old.expires_at else ends)
        return changes.with_key(changes.with_changed_key(service, ending), new)

    text = f"the key {key_id} of {name} is replaced; both open for {overlap}"
    outcome = await ask.control.edit(ask.user.name, name, rotate, "key", text)
    made = outcome.revision.services[name].keys[-1]
    return Reply(KeyShown(code, key_view(made)), 201)


async def _revoke(ask: Ask) -> Reply:
    name, service = ask.service("operate")
    key_id = ask.params["key"]
    _found(service, key_id)
    text = f"the key {key_id} of {name} opens nothing any more"
    await ask.control.edit(ask.user.name, name, lambda one: changes.without_key(one, key_id), "key", text)
    return Reply(None, 204)


def _found(service: ServiceConfig, key_id: str) -> KeyConfig:
    try:
        return changes.key_of(service, key_id)
    except Conflict as error:
        raise NotFound(str(error)) from None


def _next_id(service: ServiceConfig, key_id: str) -> str:
    stem = key_id.rpartition("-r")[0] if key_id.rpartition("-r")[2].isdecimal() else key_id
    taken = {key.id for key in service.keys}
    return next(name for number in range(2, len(taken) + 3) if (name := f"{stem[:120]}-r{number}") not in taken)


async def _hashed(code: str) -> tuple[str, str]:
    if not code:
        return keys.generate()
    try:
        return code, await asyncio.to_thread(keys.chosen, code)
    except ValueError as error:
        raise Invalid(str(error), "code") from None


# Scaling...


async def _scale(ask: Ask) -> Reply:
    name, _ = ask.service("operate")
    scaling: ScalingConfig = ask.body
    text = f"{name} has {scaling.min} to {scaling.max} nodes by its load"
    return await edited_by(ask, lambda one: replace(one, scaling=scaling), "scaling", text, scaling=_table(scaling))


class Nodes(Struct, frozen=True, forbid_unknown_fields=True):
    """A fixed number of nodes."""

    nodes: int


async def _fix(ask: Ask) -> Reply:
    name, _ = ask.service("operate")
    nodes = ask.body.nodes
    if not 0 <= nodes <= 1024:
        raise Invalid(f"expected a whole number from 0 to 1024, got {nodes}", "nodes")
    text = f"{name} has {nodes} nodes"
    return await edited_by(ask, lambda one: replace(one, scaling=None, nodes=nodes), "scaling", text, nodes=nodes)


async def _decisions(ask: Ask) -> tuple[Decision, ...]:
    name, _ = ask.service("view")
    elastic, variant = ask.control.elastic, ask.query.get("variant") or STABLE
    if variant not in (STABLE, CANARY):
        raise Invalid(f"expected {STABLE} or {CANARY}, got {variant[:32]!r}", "variant")
    deployment = f"{name}/{CANARY}" if variant == CANARY else name
    return tuple(elastic.decisions.get(deployment, ())) if elastic is not None else ()


async def _simulate(ask: Ask) -> tuple[Decision, ...]:
    wanted: Simulation = ask.body
    if len(wanted.series) > MOST_LOOKS:
        raise Invalid(f"expected at most {MOST_LOOKS} moments", "series")
    moments = [at for at, _ in wanted.series]
    if any(later < earlier for earlier, later in pairwise(moments)):
        raise Invalid("the moments must not go back", "series")
    return tuple(await asyncio.to_thread(lambda: list(simulate(wanted.scaling, wanted.nodes, wanted.series))))


def _table(scaling: ScalingConfig) -> Mapping[str, Any]:
    table: Mapping[str, Any] = msgspec.to_builtins(scaling)
    return table


_SERVICE = "/services/{name}"
ENDPOINTS = (
    Endpoint("PUT", f"{_SERVICE}/canary", "Publish a canary, or change it", "member", _publish, CanaryConfig, dict,
             "canary"),
    Endpoint("PUT", f"{_SERVICE}/canary/weight", "Change the canary's share", "member", _weigh, Weight, dict,
             "canary"),
    Endpoint("POST", f"{_SERVICE}/canary/takeover", "Let the canary take over", "member", _take_over, None, dict,
             "canary"),
    Endpoint("DELETE", f"{_SERVICE}/canary", "Take the canary offline", "member", _take_offline, None, dict, "canary"),
    Endpoint("GET", f"{_SERVICE}/keys", "List the keys", "member", _keys, None, Keys, "operate"),
    Endpoint("POST", f"{_SERVICE}/keys", "Make a key; its code is shown once", "member", _new_key, NewKey, KeyShown,
             "operate", status=201),
    Endpoint("POST", f"{_SERVICE}/keys/{{key}}/rotate", "Replace a key, both open for a while", "member", _rotate,
             Rotation, KeyShown, "operate", status=201),
    Endpoint("DELETE", f"{_SERVICE}/keys/{{key}}", "Take a key away", "member", _revoke, action="operate", status=204),
    Endpoint("PUT", f"{_SERVICE}/scaling", "Let the load decide how many nodes there are", "member", _scale,
             ScalingConfig, dict, "operate"),
    Endpoint("GET", f"{_SERVICE}/scaling/decisions", "The latest decisions, oldest first", "member", _decisions, None,
             tuple[Decision, ...], "view", ("variant",)),
    Endpoint("PUT", f"{_SERVICE}/nodes", "Have a fixed number of nodes", "member", _fix, Nodes, dict, "operate"),
    Endpoint("POST", "/scaling/simulate", "Try a scaling rule on a series of loads", "member", _simulate, Simulation,
             tuple[Decision, ...]),
)  # fmt: skip
