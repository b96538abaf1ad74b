"""Who may sign in: users, and the tokens by which they do, each shown once."""

from typing import Any

from starlette.responses import Response

from gateway.console import forms
from gateway.console.visit import Row, Visit
from gateway.control.errors import Conflict, ControlError, Invalid


async def _people(visit: Visit, status: int = 200, error: ControlError | None = None, made: Any = None) -> Response:
    """One's own tokens; to administrators, everybody and all tokens."""
    users = await visit.call("GET", "/users") if visit.user.role == "admin" else []
    tokens = await visit.call("GET", "/tokens")
    return visit.page(
        "people.html", status, here="people", users=users, tokens=tokens, error=error, made=made, typed=visit.form
    )


async def _add(visit: Visit) -> Response:
    body = {"name": visit.field("name").strip(), "role": visit.field("role"), "project": visit.field("project").strip()}
    try:
        await visit.call("POST", "/users", body)
    except (Invalid, Conflict) as error:
        return await _people(visit, error.status, error)
    return visit.go("/people")


async def _change(visit: Visit) -> Response:
    body: dict[str, Any] = {"role": visit.field("role"), "project": visit.field("project").strip()}
    body["disabled"] = bool(visit.field("disabled"))
    try:
        if visit.field("act") == "remove":
            await visit.call("DELETE", "/users/{user}")
        else:
            await visit.call("PATCH", "/users/{user}", body)
    except (Invalid, Conflict) as error:
        return await _people(visit, error.status, error)
    return visit.go("/people")


async def _token(visit: Visit) -> Response:
    """A token for somebody else, or for oneself; the page after it is the only one that shows it."""
    user = visit.field("user")
    body = {"label": visit.field("label").strip()[:200], **forms.expiry(visit.form)}
    try:
        if user and user != visit.user.name:
            made = await visit.call("POST", "/users/{user}/tokens", body, user=user)
        else:
            made = await visit.call("POST", "/tokens", body)
    except (Invalid, Conflict) as error:
        return await _people(visit, error.status, error)
    return await _people(visit, made=made)


async def _revoke(visit: Visit) -> Response:
    await visit.call("DELETE", "/tokens/{token}")
    return visit.go("/people")


PAGES = (
    Row("GET", "/people", _people),
    Row("POST", "/people", _add),
    Row("POST", "/people/tokens", _token),
    Row("POST", "/people/tokens/{token}/revoke", _revoke),
    Row("POST", "/people/users/{user}", _change),
)
