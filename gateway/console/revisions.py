"""What was asked, what was decided, by whom, and the way back."""

from starlette.responses import Response

from gateway.console import forms
from gateway.console.visit import Row, Visit


async def _revisions(visit: Visit) -> Response:
    revisions = await visit.call("GET", "/revisions", query={"limit": "200"})
    return visit.page("revisions.html", here="revisions", revisions=revisions)


async def _revision(visit: Visit) -> Response:
    planned = await visit.call("GET", "/revisions/{number}")
    return visit.page("revision.html", here="revisions", planned=planned)


async def _roll_back(visit: Visit) -> Response:
    await visit.call("POST", "/rollback", {"revision": forms.number(visit.params["number"])})
    return visit.go("/revisions")


async def _events(visit: Visit) -> Response:
    query = {"limit": "200"}
    if before := visit.query.get("before"):
        query["before"] = before
    events = await visit.call("GET", "/events", query=query)
    return visit.page("audit.html", here="events", events=events)


async def _requests(visit: Visit) -> Response:
    query = {name: value for name in ("service", "status", "id") if (value := visit.query.get(name, "").strip())}
    requests = await visit.call("GET", "/requests", query=query | {"limit": "200"})
    return visit.page("requests.html", here="requests", requests=requests, query=query)


PAGES = (
    Row("GET", "/requests", _requests),
    Row("GET", "/revisions", _revisions),
    Row("GET", "/revisions/{number}", _revision),
    Row("POST", "/revisions/{number}/rollback", _roll_back),
    Row("GET", "/events", _events),
)
