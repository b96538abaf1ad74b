"""The API's endpoints for the whole: plans, revisions, events, users and tokens, packages and machines."""

import functools
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from gateway import __version__
from gateway.accesslog import AccessLine
from gateway.config import ServiceConfig
from gateway.control import changes, seeding
from gateway.control.accounts import Role, Token, User
from gateway.control.endpoint import Ask, Endpoint, Reply
from gateway.control.errors import Invalid, NotFound, Stale
from gateway.control.machine import Machine, machine
from gateway.control.packages import Package, check_package, packages
from gateway.control.permissions import may
from gateway.control.plans import Change, plan
from gateway.control.store import Event, NewEvent
from gateway.serviceconfig import Name


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """Services as they are to be."""

    services: dict[str, dict[str, Any]]
    prune: bool = False
    """Whether services that are not named go."""
    note: str = ""
    revision: int | None = None
    """The revision that the plan was made from; the apply is refused if there is a newer one."""


class Planned(Struct, frozen=True):
    """What an apply would do, or has done."""

    revision: int
    changes: tuple[Change, ...]


class Drift(Struct, frozen=True):
    """How what is served differs from the configuration file."""

    changes: tuple[Change, ...]


class RevisionView(Struct, frozen=True):
    """A revision in a list."""

    number: int
    at: datetime
    actor: str
    note: str


class Rollback(Struct, frozen=True, forbid_unknown_fields=True):
    """The revision to go back to."""

    revision: int


class NewUser(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who is to sign in."""

    name: Name
    role: Role = "member"
    project: str = ""


class UserChange(Struct, frozen=True, forbid_unknown_fields=True):
    """What changes of a user."""

    role: Role | None = None
    project: str | None = None
    disabled: bool | None = None


class NewToken(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be made."""

    label: str = ""
    expires_at: datetime | None = None


class TokenShown(Struct, frozen=True):
    """A token that was just made: its text is never shown again."""

    text: str
    token: Token


class Me(Struct, frozen=True):
    """Who is calling, and what."""

    user: User
    gateway: str
    revision: int


# Plans and revisions...


def _described(ask: Ask, wanted: Wanted) -> dict[str, ServiceConfig]:
    before = ask.control.services
    after = {} if wanted.prune else dict(before)
    for name, table in wanted.services.items():
        changes.check_name(name)
        try:
            service = changes.described(table)
            if service.app_codes and isinstance(service.app_codes, tuple):
                raise Invalid("codes are not given here: make keys, whose codes are shown once", "app_codes")
            check_package(ask.control, name, service)
        except Invalid as error:
            raise Invalid(str(error), f"services.{name}" + (f".{error.field}" if error.field else "")) from None
        known = before.get(name)
        after[name] = changes.kept_from(known, service, table)
    return after


async def _plan(ask: Ask) -> Planned:
    after = _described(ask, ask.body)
    return Planned(ask.control.head.number, plan(ask.control.services, after))


async def _apply(ask: Ask) -> Planned:
    wanted: Wanted = ask.body

    def apply(services: dict[str, ServiceConfig]) -> None:
        if wanted.revision not in (None, ask.control.head.number):
            raise Stale(f"the services are at revision {ask.control.head.number}: plan again")
        after = _described(ask, wanted)
        services.clear()
        services.update(after)

    outcome = await ask.control.act(
        ask.user.name, apply, [NewEvent("apply", "", wanted.note or "applied")], wanted.note
    )
    return Planned(outcome.revision.number, outcome.changes)


async def _drift(ask: Ask) -> Drift:
    return Drift(await ask.control.blocking(seeding.drift, ask.control.store, ask.control.config))


async def _revisions(ask: Ask) -> tuple[RevisionView, ...]:
    most = ask.whole("limit", 100, 1, 500)
    found = await ask.control.blocking(ask.control.store.revisions, most)
    return tuple(RevisionView(one.number, one.at, one.actor, one.note) for one in found)


async def _revision(ask: Ask) -> Planned:
    revision = await _stored(ask, ask.params["number"])
    return Planned(revision.number, plan(revision.services, ask.control.services))


async def _roll_back(ask: Ask) -> Planned:
    revision = await _stored(ask, str(ask.body.revision))

    def roll_back(services: dict[str, ServiceConfig]) -> None:
        # NOTE: keys stay as they are: one that was taken away must never open anything again.
        keys = {name: one.keys for name, one in services.items()}
        services.clear()
        services.update({name: replace(one, keys=keys.get(name, one.keys)) for name, one in revision.services.items()})

    text = f"back to revision {revision.number}"
    outcome = await ask.control.act(ask.user.name, roll_back, [NewEvent("rollback", "", text)], text)
    return Planned(outcome.revision.number, outcome.changes)


async def _stored(ask: Ask, number: str) -> Any:
    found = None
    if number.isascii() and number.isdecimal() and len(number) < 10:
        found = await ask.control.blocking(ask.control.store.revision, int(number))
    if found is None:
        raise NotFound(f"there is no revision {number[:32]}, or it is no longer kept")
    return found


# Events...


async def _events(ask: Ask) -> tuple[Event, ...]:
    service = ask.query.get("service") or None
    before = ask.whole("before", 0, 0, 1 << 53) or None
    most = ask.whole("limit", 100, 1, 1000)
    found = await ask.control.blocking(ask.control.store.events, most, service, before)
    if ask.user.role == "admin":
        return tuple(found)
    sharing, services = ask.control.config.gateway.sharing, ask.control.services
    return tuple(
        one for one in found if one.service in services and may(ask.user, "view", services[one.service], sharing)
    )


async def _requests(ask: Ask) -> tuple[AccessLine, ...]:
    """The latest first, of services that the caller may see; an administrator sees those for no service, too."""
    assert ask.control.fleet is not None
    most, query = ask.whole("limit", 100, 1, 500), ask.query
    sharing, services = ask.control.config.gateway.sharing, ask.control.services
    seen = {name for name, one in services.items() if may(ask.user, "view", one, sharing)}
    return tuple(
        line
        for line in reversed(await ask.control.fleet.requests())
        if (line.service in seen or ask.user.role == "admin")
        and query.get("service", "") in ("", line.service)
        and str(line.status).startswith(query.get("status", ""))
        and query.get("id", "") in ("", line.id)
    )[:most]


# Users...


async def _me(ask: Ask) -> Me:
    return Me(ask.user, __version__, ask.control.head.number)


async def _users(ask: Ask) -> tuple[User, ...]:
    return tuple(await ask.control.blocking(ask.control.accounts.users))


async def _new_user(ask: Ask) -> Reply:
    wanted: NewUser = ask.body
    user = User(wanted.name, wanted.role, wanted.project)
    await ask.control.blocking(ask.control.accounts.add, user)
    await ask.control.note(ask.user.name, NewEvent("user", "", f"{user.name} is a user, {user.role}"))
    return Reply(user, 201)


async def _change_user(ask: Ask) -> User:
    values = {name: value for name, value in asdict(ask.body).items() if value is not None}
    change = functools.partial(ask.control.accounts.change, ask.params["user"], **values)
    user = await ask.control.blocking(change)
    await ask.control.note(ask.user.name, NewEvent("user", "", f"{user.name} was changed", values))
    return user


async def _remove_user(ask: Ask) -> Reply:
    name = ask.params["user"]
    await ask.control.blocking(ask.control.accounts.remove, name)
    await ask.control.note(ask.user.name, NewEvent("user", "", f"{name} is a user no more"))
    return Reply(None, 204)


async def _tokens(ask: Ask) -> tuple[Token, ...]:
    user = None if ask.user.role == "admin" else ask.user.name
    return tuple(await ask.control.blocking(ask.control.accounts.tokens, user))


async def _new_token(ask: Ask) -> Reply:
    wanted: NewToken = ask.body
    user = ask.params.get("user", ask.user.name)
    changes.check_moment(wanted.expires_at, "expires_at")
    token, text = await ask.control.blocking(ask.control.accounts.new_token, user, wanted.label, wanted.expires_at)
    await ask.control.note(ask.user.name, NewEvent("token", "", f"{user} has the token {token.id}"))
    return Reply(TokenShown(text, token), 201)


async def _revoke_token(ask: Ask) -> Reply:
    own = await ask.control.blocking(ask.control.accounts.tokens, None if ask.user.role == "admin" else ask.user.name)
    if ask.params["token"] not in {token.id for token in own}:
        raise NotFound(f"there is no token {ask.params['token'][:64]!r}")
    token = await ask.control.blocking(ask.control.accounts.revoke, ask.params["token"])
    await ask.control.note(ask.user.name, NewEvent("token", "", f"the token {token.id} of {token.user} is revoked"))
    return Reply(None, 204)


# What there is...


async def _packages(ask: Ask) -> tuple[Package, ...]:
    return tuple(await ask.control.blocking(packages, ask.control))


async def _machines(ask: Ask) -> tuple[Machine, ...]:
    return (await ask.control.blocking(machine),)


async def _models(ask: Ask) -> Any:
    assert ask.control.fleet is not None
    return await ask.control.fleet.describe()


ENDPOINTS = (
    Endpoint("GET", "/me", "Who is calling", "member", _me, None, Me),
    Endpoint("POST", "/plan", "What applying these services would change", "admin", _plan, Wanted, Planned),
    Endpoint("POST", "/apply", "Apply these services, all or none", "admin", _apply, Wanted, Planned),
    Endpoint("GET", "/drift", "How the services differ from the configuration file", "admin", _drift, None, Drift),
    Endpoint("GET", "/revisions", "List the revisions", "admin", _revisions, None, tuple[RevisionView, ...],
             query=("limit",)),
    Endpoint("GET", "/revisions/{number}", "What has changed since a revision", "admin", _revision, None, Planned),
    Endpoint("POST", "/rollback", "Go back to a revision", "admin", _roll_back, Rollback, Planned),
    Endpoint("GET", "/events", "What has happened", "member", _events, None, tuple[Event, ...],
             query=("service", "before", "limit")),
    Endpoint("GET", "/requests", "The latest requests, from the access log", "member", _requests, None,
             tuple[AccessLine, ...], query=("service", "status", "id", "limit")),
    Endpoint("GET", "/users", "List the users", "admin", _users, None, tuple[User, ...]),
    Endpoint("POST", "/users", "Add a user", "admin", _new_user, NewUser, User, status=201),
    Endpoint("PATCH", "/users/{user}", "Change a user", "admin", _change_user, UserChange, User),
    Endpoint("DELETE", "/users/{user}", "Remove a user and all tokens", "admin", _remove_user, status=204),
    Endpoint("POST", "/users/{user}/tokens", "Make a token for a user; it is shown once", "admin", _new_token,
             NewToken, TokenShown, status=201),
    Endpoint("GET", "/tokens", "List your tokens; an administrator's list has all", "member", _tokens, None,
             tuple[Token, ...]),
    Endpoint("POST", "/tokens", "Make a token for yourself; it is shown once", "member", _new_token, NewToken,
             TokenShown, status=201),
    Endpoint("DELETE", "/tokens/{token}", "Revoke a token", "member", _revoke_token, status=204),
    Endpoint("GET", "/packages", "List the model packages", "member", _packages, None, tuple[Package, ...]),
    Endpoint("GET", "/machines", "List the machines and what is free on them", "member", _machines, None,
             tuple[Machine, ...]),
    Endpoint("GET", "/models", "How the loaded models stand", "member", _models, None, dict),
)  # fmt: skip
