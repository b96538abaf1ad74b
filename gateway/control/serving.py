"""The API's endpoints for services: made, looked for, changed, started, stopped, deleted."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from gateway.config import NodeConfig, ScalingConfig, ServiceConfig
from gateway.control import changes
from gateway.control.endpoint import Ask, Endpoint, Reply
from gateway.control.errors import Conflict, ControlError, Invalid
from gateway.control.packages import check_package
from gateway.control.permissions import Action, require
from gateway.control.store import NewEvent, now
from gateway.control.views import ServiceView, edited_by, listed, shown_by, view


class Start(Struct, frozen=True, forbid_unknown_fields=True):
    """What is chosen anew when a service is started; what is left out stays as it was."""

    duration: str | None = None
    node: NodeConfig | None = None
    nodes: int | None = None
    scaling: ScalingConfig | None = None


class Stop(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a service is stopped, for its callers to read."""

    reason: str = ""


class Duration(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a service runs from its start on, as 8h; empty for ever."""

    duration: str


class Names(Struct, frozen=True, forbid_unknown_fields=True):
    """Several services."""

    names: tuple[str, ...]


class Done(Struct, frozen=True):
    """What became of each of several services."""

    done: tuple[str, ...]
    failed: dict[str, str] = {}


class Page(Struct, frozen=True):
    """Services that were looked for."""

    services: tuple[ServiceView, ...]
    total: int
    revision: int


async def _list(ask: Ask) -> Page:
    control = ask.control
    found = listed(control.services, ask.user, _sharing(ask), ask.query)
    first, most = ask.whole("offset", 0, 0, 10**9), ask.whole("limit", 1000, 1, 10_000)
    models = await _models(ask)
    views = tuple(view(name, one, ask.user, _sharing(ask), models) for name, one in found[first : first + most])
    return Page(views, len(found), control.head.number)


async def _create(ask: Ask) -> Reply:
    table = dict(ask.body)
    name = changes.check_name(table.pop("name", None))
    for field in changes.FIXED - {"owner"}:
        if field in table:
            raise Invalid(f"{field} is not given here: there is a call of its own for it", field)
    if ask.user.role != "admin":
        table |= {"owner": ask.user.name, "project": ask.user.project}
    service = changes.described({"owner": ask.user.name, **table})
    if service.app_codes:
        raise Invalid("codes are not given here: make keys, whose codes are shown once", "app_codes")
    service = changes.with_expiry(service, now())
    check_package(ask.control, name, service)

    def create(services: dict[str, ServiceConfig]) -> None:
        if name in services:
            raise Conflict(f"there is a service {name!r} already", "name")
        services[name] = service

    await ask.control.act(ask.user.name, create, [NewEvent("create", name, f"{name} was created")])
    return await shown_by(ask, name, 201)


async def _get(ask: Ask) -> Reply:
    name, _ = ask.service("view")
    return await shown_by(ask, name)


async def _edit(ask: Ask) -> Reply:
    name, _ = ask.service("operate")

    def edit(service: ServiceConfig) -> ServiceConfig:
        edited = changes.edited(service, ask.body)
        check_package(ask.control, name, edited)
        return edited

    return await edited_by(ask, edit, "edit", f"{name} was edited: {', '.join(sorted(ask.body))}")


async def _delete(ask: Ask) -> Reply:
    name, _ = ask.service("delete")
    await ask.control.act(ask.user.name, lambda services: _pop(services, name), [_deleted(name)])
    return Reply(None, 204)


async def _start(ask: Ask) -> Reply:
    name, _ = ask.service("operate")
    chosen: Start = ask.body

    def start(service: ServiceConfig) -> ServiceConfig:
        check_package(ask.control, name, service)
        return changes.started(
            service, now(), duration=chosen.duration, node=chosen.node, nodes=chosen.nodes, scaling=chosen.scaling
        )

    return await edited_by(ask, start, "start", f"{name} was started")


async def _stop(ask: Ask) -> Reply:
    name, _ = ask.service("operate")
    reason: str = ask.body.reason
    return await edited_by(ask, lambda one: changes.stopped(one, reason), "stop", f"{name} was stopped", reason=reason)


async def _duration(ask: Ask) -> Reply:
    name, _ = ask.service("duration")
    duration: str = ask.body.duration
    text = f"{name} runs for {duration or 'ever'}"
    return await edited_by(ask, lambda one: changes.lasting(one, duration, now()), "duration", text, duration=duration)


async def _delete_many(ask: Ask) -> Done:
    async def delete(name: str) -> None:
        await ask.control.act(ask.user.name, lambda services: _pop(services, name), [_deleted(name)])

    return await _each(ask, "delete", delete)


async def _stop_many(ask: Ask) -> Done:
    async def stop(name: str) -> None:
        await ask.control.edit(ask.user.name, name, changes.stopped, "stop", f"{name} was stopped")

    return await _each(ask, "operate", stop)


async def _each(ask: Ask, action: Action, act: Callable[[str], Awaitable[None]]) -> Done:
    """Do it with every service that is named, as far as the caller may."""
    done, failed = [], {}
    for name in dict.fromkeys(ask.body.names):
        try:
            require(ask.user, action, name, ask.control.service(name), _sharing(ask))
            await act(name)
        except ControlError as error:
            failed[name] = str(error)
        else:
            done.append(name)
    return Done(tuple(done), failed)


def _pop(services: dict[str, ServiceConfig], name: str) -> None:
    services.pop(name, None)


def _deleted(name: str) -> NewEvent:
    return NewEvent("delete", name, f"{name} was deleted")


async def _models(ask: Ask) -> Any:
    assert ask.control.fleet is not None
    return (await ask.control.fleet.describe()).models


def _sharing(ask: Ask) -> bool:
    return ask.control.config.gateway.sharing


SEARCH = ("name", "state", "owner", "node", "model", "sort", "offset", "limit")

ENDPOINTS = (
    Endpoint("GET", "/services", "Look for services", "member", _list, gives=Page, query=SEARCH),
    Endpoint("POST", "/services", "Create a service", "member", _create, dict[str, Any], ServiceView, status=201),
    Endpoint("POST", "/services/delete", "Delete several services", "member", _delete_many, Names, Done),
    Endpoint("POST", "/services/stop", "Stop several services", "member", _stop_many, Names, Done),
    Endpoint("GET", "/services/{name}", "Look at a service", "member", _get, gives=ServiceView, action="view"),
    Endpoint("PATCH", "/services/{name}", "Edit some fields of a service", "member", _edit, dict[str, Any],
             ServiceView, "operate"),
    Endpoint("DELETE", "/services/{name}", "Delete a service", "member", _delete, action="delete", status=204),
    Endpoint("POST", "/services/{name}/start", "Start a service again", "member", _start, Start, ServiceView,
             "operate"),
    Endpoint("POST", "/services/{name}/stop", "Stop a service", "member", _stop, Stop, ServiceView, "operate"),
    Endpoint("PUT", "/services/{name}/duration", "Let a service run longer or shorter", "member", _duration, Duration,
             ServiceView, "duration"),
)  # fmt: skip
