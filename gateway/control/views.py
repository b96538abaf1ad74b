"""Services as the API shows them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway.config import Secret, ServiceConfig
from gateway.control.accounts import User
from gateway.control.endpoint import Ask, Reply, etag
from gateway.control.errors import Invalid
from gateway.control.permissions import Share, may, share
from gateway.control.plane import Edit
from gateway.summary import VersionSummary

HIDDEN = "hidden"
LAST = datetime.max.replace(tzinfo=UTC)
SORTS = ("name", "expires", "-expires", "state", "owner")


class ServiceView(Struct, frozen=True, omit_defaults=False):
    """One service."""

    name: str
    state: str
    """As callers are told of it: one past its expiry is expired."""
    type: str
    model: str
    version: str
    owner: str
    expires: str
    """The moment it stops by itself; "unlimited", or "-" for one that does not run."""
    share: Share
    """What the caller may do with it."""
    etag: str
    config: dict[str, Any]
    """The whole description, secrets left out."""
    models: tuple[VersionSummary, ...] = ()
    """The versions of its model, and of its canary's."""


def view(name: str, service: ServiceConfig, user: User, sharing: bool, models: Iterable[VersionSummary]) -> ServiceView:
    """The service as that user sees it."""
    own = {service.model or name, (service.canary.model or service.model or name) if service.canary else ""}
    return ServiceView(
        name=name,
        state=state_of(service),
        type=service.type,
        model=service.model or name,
        version=service.version,
        owner=service.owner,
        expires=expiry_of(service),
        share=share(user, service, sharing),
        etag=etag(service),
        config=shown(service),
        models=tuple(one for one in models if one.name in own),
    )


async def shown_by(ask: Ask, name: str, status: int = 200) -> Reply:
    """The answer to a call about a service: the service as it is now. Raises NotFound."""
    service = ask.control.service(name)
    assert ask.control.fleet is not None
    models = (await ask.control.fleet.describe()).models
    seen = view(name, service, ask.user, ask.control.config.gateway.sharing, models)
    return Reply(seen, status, {"ETag": etag(service)})


async def edited_by(ask: Ask, edit: Edit, kind: str, text: str, **data: Any) -> Reply:
    """Edit the service that the path names, and show it. Raises ControlError, and then nothing has changed."""
    name = ask.params["name"]
    await ask.control.edit(ask.user.name, name, edit, kind, text, **data)
    return await shown_by(ask, name)


def state_of(service: ServiceConfig) -> str:
    """The state, expiry counted at once."""
    over = service.expires_at is not None and service.expires_at <= datetime.now(UTC)
    return "expired" if service.state == "running" and over else service.state


def expiry_of(service: ServiceConfig) -> str:
    """The moment of its expiry, as the list shows it."""
    if state_of(service) != "running":
        return "-"
    return service.expires_at.isoformat() if service.expires_at is not None else "unlimited"


def shown(service: ServiceConfig) -> dict[str, Any]:
    """The description without hashes and codes."""
    codes = service.app_codes
    hidden = replace(
        service,
        app_codes=codes if isinstance(codes, Secret) else (HIDDEN,) * len(codes),
        keys=(),
    )
    table: dict[str, Any] = msgspec.to_builtins(hidden)
    table["keys"] = [key_view(key) for key in service.keys]
    return table


def key_view(key: Any) -> dict[str, Any]:
    """A key without its hash."""
    table: dict[str, Any] = msgspec.to_builtins(key)
    return {name: value for name, value in table.items() if name != "hash"}


def listed(
    services: Mapping[str, ServiceConfig], user: User, sharing: bool, query: Mapping[str, str]
) -> list[tuple[str, ServiceConfig]]:
    """The services that the user may see and the query means, sorted. Raises Invalid."""
    found = [
        (name, one)
        for name, one in services.items()
        if may(user, "view", one, sharing) and all(_matches(name, one, key, query.get(key, "")) for key in _FILTERS)
    ]
    sort = query.get("sort", "name")
    if sort not in SORTS:
        raise Invalid(f"expected one of {', '.join(SORTS)}, got {sort[:32]!r}", "sort")
    found.sort(key=lambda pair: pair[0])
    if sort.endswith("expires"):
        return _by_expiry(found, backwards=sort.startswith("-"))
    if sort == "state":
        found.sort(key=lambda pair: state_of(pair[1]))
    if sort == "owner":
        found.sort(key=lambda pair: pair[1].owner)
    return found


def _by_expiry(found: list[tuple[str, ServiceConfig]], backwards: bool) -> list[tuple[str, ServiceConfig]]:
    """SPEC: services without an end, and those that do not run, come last, whichever way it is sorted."""
    ending = [pair for pair in found if pair[1].expires_at is not None and state_of(pair[1]) == "running"]
    ending.sort(key=lambda pair: pair[1].expires_at or LAST, reverse=backwards)
    endless = [pair for pair in found if pair[1].expires_at is None and state_of(pair[1]) == "running"]
    return [*ending, *endless, *(pair for pair in found if state_of(pair[1]) != "running")]


_FILTERS = ("name", "state", "owner", "node", "model")


def _matches(name: str, service: ServiceConfig, key: str, wanted: str) -> bool:
    if not wanted:
        return True
    match key:
        case "name":
            return wanted.lower() in name.lower()
        case "state":
            return state_of(service) == wanted
        case "owner":
            return service.owner == wanted
        case "node":
            return wanted in (service.node.device, f"{service.node.threads}", service.node.driver)
        case _:
            canary = service.canary.model if service.canary else ""
            return wanted.lower() in (service.model or name).lower() or (
                bool(canary) and wanted.lower() in canary.lower()
            )
