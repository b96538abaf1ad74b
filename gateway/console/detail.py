"""One service: how it stands and is called, edited, started and stopped, and what has happened to it."""

from typing import Any

from starlette.responses import Response

from gateway.console import forms, listing
from gateway.console.visit import Row, Visit
from gateway.control import changes
from gateway.control.endpoint import etag
from gateway.control.errors import Conflict, ControlError, Invalid, NotFound, Stale
from gateway.control.permissions import require
from gateway.control.plans import plan

_SERVICE = "/services/{name}"

_ENDPOINTS: dict[str, tuple[tuple[str, str], ...]] = {
    "tfserving": (("TF Serving", "/v1/models:predict"),),
    "seldon": (("Seldon", "/api/v1.0/predictions"),),
    "sagemaker": (("SageMaker", "/invocations"),),
    "openai": (("OpenAI", "/v1/chat/completions"), ("OpenAI", "/v1/models")),
    "v2": (("v2", "/v2/models/{name}/infer"),),
    "custom": (("HTTP", "/"),),
}


async def shown(visit: Visit, template: str, tab: str, status: int = 200, **given: Any) -> Response:
    """A tab of the service that the path names."""
    if "service" not in given:
        given["service"] = await visit.call("GET", _SERVICE)
    return visit.page(template, status, here="services", tab=tab, **given)


async def _overview(visit: Visit) -> Response:
    service = await visit.call("GET", _SERVICE)
    fleet = visit.calls.control.fleet
    assert fleet is not None
    name, kind = service["name"], service["type"]
    kinds = [one for one in _ENDPOINTS if one != "custom"] if kind == "any" else [kind]
    address = f"{fleet.entrance().url}/services/{name}"
    endpoints = [(title, address + path.format(name=name)) for one in kinds for title, path in _ENDPOINTS[one]]
    return await shown(visit, "overview.html", "overview", service=service, endpoints=endpoints)


async def _edit(visit: Visit) -> Response:
    service = await visit.call("GET", _SERVICE)
    return await listing.form(visit, service["config"], service["name"], service=service, etag=service["etag"])


async def _save(visit: Visit) -> Response:
    """Show what would change, or change it; a form that somebody was faster than is shown what it would change now."""
    name, control = visit.params["name"], visit.calls.control
    require(visit.user, "operate", name, control.service(name), control.config.gateway.sharing)
    service = await visit.call("GET", _SERVICE)
    table = forms.service(visit.form, service["config"])
    if visit.user.role != "admin":
        table.pop("project", None)
    table.pop("duration", None)  # has a form of its own: the moment of the end follows from the start
    tag = visit.field("etag")
    error: ControlError | None = None
    try:
        before = control.service(name)
        planned = plan({name: before}, {name: changes.edited(before, table)})
        if visit.field("act") == "plan":
            return await listing.form(visit, service["config"] | table, name, planned, service=service, etag=tag)
        await visit.call("PATCH", _SERVICE, table, if_match=tag)
        return visit.go(f"/services/{name}", "edited")
    except Stale as stale:
        error, tag = stale, etag(control.service(name))
    except (Invalid, Conflict) as mistake:
        error, planned = mistake, ()
    return await listing.form(visit, service["config"] | table, name, planned, error, service, tag)


async def _act(visit: Visit) -> Response:
    """Start, stop, delete, or let it last."""
    match visit.params["act"]:
        case "start":
            chosen = forms.service(visit.form, {})
            body = {key: chosen[key] for key in ("duration", "node", "nodes", "scaling") if chosen.get(key) is not None}
            if "scaling" in body:
                body.pop("nodes", None)
            return await _done(visit, "started", "POST", f"{_SERVICE}/start", body)
        case "stop":
            return await _done(visit, "stopped", "POST", f"{_SERVICE}/stop", {"reason": visit.field("reason")[:500]})
        case "duration":
            body = {"duration": visit.field("duration").strip()}
            return await _done(visit, "lasting", "PUT", f"{_SERVICE}/duration", body)
        case "delete":
            await visit.call("DELETE", _SERVICE)
            return visit.go("/services", "deleted")
    raise NotFound(visit.texts("mistake.no_page"))


async def _done(visit: Visit, said: str, method: str, path: str, body: Any) -> Response:
    await visit.call(method, path, body)
    return visit.go(f"/services/{visit.params['name']}", said)


async def _events(visit: Visit) -> Response:
    query = {"service": visit.params["name"], "limit": "200"}
    return await shown(visit, "events.html", "events", events=await visit.call("GET", "/events", query=query))


PAGES = (
    Row("GET", _SERVICE, _overview),
    Row("GET", f"{_SERVICE}/edit", _edit),
    Row("POST", f"{_SERVICE}/edit", _save),
    Row("GET", f"{_SERVICE}/events", _events),
    Row("POST", f"{_SERVICE}/act/{{act}}", _act),
)
