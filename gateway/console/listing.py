"""The list of services: looked for, sorted, stopped and deleted together; and new ones made."""

from typing import Any, get_args

from starlette.responses import Response

from gateway.console import forms
from gateway.console.visit import Row, Visit
from gateway.control import changes
from gateway.control.errors import ControlError, NotAllowed
from gateway.control.plans import plan
from gateway.control.views import SORTS
from gateway.serviceconfig import Metric, ServiceState, ServiceType

FILTERS = ("name", "state", "owner", "node", "model")
PAGE = 100
STATES: tuple[str, ...] = get_args(ServiceState)
TYPES = ("any", *(kind for kind in get_args(ServiceType) if kind != "any"))
METRICS: tuple[str, ...] = get_args(Metric)


async def _list(visit: Visit) -> Response:
    query = {name: value for name in FILTERS if (value := visit.query.get(name, ""))}
    sort = visit.query.get("sort", "name")
    start = visit.query.get("offset") or "0"
    asked = {**query, "sort": sort, "offset": start, "limit": str(PAGE)}
    found = await visit.call("GET", "/services", query=asked)
    return visit.page(
        "services.html", here="services", found=found, query=query, sort=sort, sorts=SORTS,
        states=STATES, offset=int(start), limit=PAGE,
    )  # fmt: skip


async def _several(visit: Visit) -> Response:
    """Stop or delete those that are ticked."""
    names = [name for name in visit.form.getlist("name") if isinstance(name, str)]
    act = "delete" if visit.field("act") == "delete" else "stop"
    done = await visit.call("POST", f"/services/{act}", {"names": names})
    if done["failed"]:
        return visit.page("several.html", 409, here="services", act=act, done=done)
    return visit.go("/services", f"{act}.several" if names else "")


async def _new(visit: Visit) -> Response:
    return await form(visit, {}, "")


async def _create(visit: Visit) -> Response:
    table = forms.service(visit.form, {})
    name = visit.field("name").strip()
    if visit.user.role != "admin":
        table.pop("project", None)
    table = {field: value for field, value in table.items() if value is not None}
    try:
        if visit.field("act") == "plan":
            after = changes.described({"owner": visit.user.name, **table})
            return await form(visit, table, name, plan({}, {changes.check_name(name): after}))
        await visit.call("POST", "/services", {"name": name, **table})
    except NotAllowed:
        raise
    except ControlError as error:
        return await form(visit, table, name, error=error)
    return visit.go(f"/services/{name}", "created")


async def form(
    visit: Visit,
    table: Any,
    name: str,
    planned: Any = (),
    error: ControlError | None = None,
    service: Any = None,
    etag: str = "",
) -> Response:
    """The form of a service: a new one, or `service` as it is edited."""
    packages = await visit.call("GET", "/packages")
    status = error.status if error is not None else 200
    return visit.page(
        "edit.html", status, here="services", table=table, name=name, planned=planned, error=error, service=service,
        etag=etag, packages=packages, types=TYPES, typed=visit.form, metrics=METRICS,
    )  # fmt: skip


PAGES = (
    Row("GET", "/services", _list),
    Row("POST", "/services/several", _several),
    Row("GET", "/services/new", _new),
    Row("POST", "/services/new", _create),
)
