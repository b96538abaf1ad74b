"""A service's traffic, split between its variants, and its keys."""

from typing import Any, get_args

from starlette.responses import Response

from gateway.console import forms
from gateway.console.detail import shown
from gateway.console.visit import Row, Visit
from gateway.control.errors import Conflict, Invalid, NotFound
from gateway.serviceconfig import KeyScope

_SERVICE = "/services/{name}"
_SCOPES: tuple[str, ...] = get_args(KeyScope)


# Traffic...


async def _traffic(visit: Visit, status: int = 200, error: Any = None) -> Response:
    packages = await visit.call("GET", "/packages")
    events = await visit.call("GET", "/events", query={"service": visit.params["name"], "limit": "200"})
    kinds = ("canary", "weight", "takeover", "offline", "analysis")
    shifts = [event for event in events if event["kind"] in kinds]
    return await shown(
        visit, "traffic.html", "traffic", status, packages=packages, shifts=shifts, error=error, typed=visit.form
    )


async def _release(visit: Visit) -> Response:
    name, act = visit.params["name"], visit.params["act"]
    try:
        match act:
            case "publish":
                await visit.call("PUT", f"{_SERVICE}/canary", _canary(visit))
                said = "published"
            case "weight":
                weight = {"weight": forms.number(visit.field("weight"))}
                await visit.call("PUT", f"{_SERVICE}/canary/weight", weight)
                said = "weighed"
            case "takeover":
                await visit.call("POST", f"{_SERVICE}/canary/takeover")
                said = "taken_over"
            case "offline":
                await visit.call("DELETE", f"{_SERVICE}/canary")
                said = "offline"
            case _:
                raise NotFound(visit.texts("mistake.no_page"))
    except (Invalid, Conflict) as error:
        return await _traffic(visit, error.status, error)
    return visit.go(f"/services/{name}/traffic", said)


def _canary(visit: Visit) -> dict[str, Any]:
    """The canary that the form describes, over the one that there is."""
    before = visit.calls.control.service(visit.params["name"]).canary
    table: dict[str, Any] = {"model": visit.field("model"), "weight": forms.number(visit.field("weight") or "0")}
    for field in ("model_version", "nodes"):
        if text := visit.field(field).strip():
            table[field] = forms.number(text)
    if version := visit.field("version").strip():
        table["version"] = version
    table["shadow"] = {"percent": forms.number(visit.field("shadow.percent") or "0")}
    if before is not None:
        table["shadow"] |= {"at_once": before.shadow.at_once, "tolerance": before.shadow.tolerance}
    if visit.field("analysis"):
        analysis: dict[str, Any] = {"take_over": bool(visit.field("analysis.take_over"))}
        for field in ("window_seconds", "samples", "error_percent", "latency_ms", "latency_ratio"):
            if text := visit.field(f"analysis.{field}").strip():
                analysis[field] = forms.number(text)
        if steps := visit.field("analysis.steps").strip():
            analysis["steps"] = [forms.number(step) for step in steps.split(",")]
        table["analysis"] = analysis
    return table


# Keys...


async def _keys(visit: Visit, status: int = 200, **given: Any) -> Response:
    keys = await visit.call("GET", f"{_SERVICE}/keys")
    given = {"made": None, "error": None, **given}
    typed = visit.form if given["error"] else {}
    return await shown(visit, "keys.html", "keys", status, keys=keys, scopes=_SCOPES, typed=typed, **given)


async def _new_key(visit: Visit) -> Response:
    body: dict[str, Any] = {"id": visit.field("id").strip(), "name": visit.field("label").strip()}
    body["scopes"] = [scope for scope in visit.form.getlist("scope") if isinstance(scope, str)]
    body |= forms.expiry(visit.form)
    if rate := visit.field("requests_per_second").strip():
        body["limits"] = {"requests_per_second": forms.number(rate)}
    return await _shown_once(visit, f"{_SERVICE}/keys", body)


async def _rotate(visit: Visit) -> Response:
    return await _shown_once(visit, f"{_SERVICE}/keys/{{key}}/rotate", {"overlap": visit.field("overlap") or "24h"})


async def _shown_once(visit: Visit, path: str, body: Any) -> Response:
    """The page after a POST, without a redirect: the code is on it, and never again."""
    try:
        made = await visit.call("POST", path, body)
    except (Invalid, Conflict) as error:
        return await _keys(visit, error.status, error=error)
    return await _keys(visit, made=made)


async def _revoke(visit: Visit) -> Response:
    await visit.call("DELETE", f"{_SERVICE}/keys/{{key}}")
    return visit.go(f"/services/{visit.params['name']}/keys", "revoked")


async def _authentication(visit: Visit) -> Response:
    """Whether callers need a key."""
    await visit.call("PATCH", _SERVICE, {"app_auth": bool(visit.field("app_auth"))})
    return visit.go(f"/services/{visit.params['name']}/keys", "edited")


PAGES = (
    Row("GET", f"{_SERVICE}/traffic", _traffic),
    Row("POST", f"{_SERVICE}/traffic/{{act}}", _release),
    Row("GET", f"{_SERVICE}/keys", _keys),
    Row("POST", f"{_SERVICE}/keys", _new_key),
    Row("POST", f"{_SERVICE}/keys/authentication", _authentication),
    Row("POST", f"{_SERVICE}/keys/{{key}}/rotate", _rotate),
    Row("POST", f"{_SERVICE}/keys/{{key}}/revoke", _revoke),
)
