"""A service's nodes: how many, by which rule, what the rule has decided, and what it would decide."""

from typing import Any

from starlette.responses import Response

from gateway.console import forms
from gateway.console.detail import shown
from gateway.console.listing import METRICS
from gateway.console.visit import Row, Visit
from gateway.control.errors import Conflict, Invalid

_SERVICE = "/services/{name}"
MOST_LINES = 20_000

EXAMPLE = (
    "0 concurrency=4\n10 concurrency=12\n20 concurrency=40\n30 concurrency=40\n400 concurrency=2\n800 concurrency=2"
)


async def _scaling(visit: Visit, status: int = 200, **given: Any) -> Response:
    decisions = await visit.call("GET", f"{_SERVICE}/scaling/decisions")
    given = {"error": None, "simulated": None, "series": EXAMPLE, **given}
    service = await visit.call("GET", _SERVICE)
    # What was typed stays in the form...
    rule = forms.scaling(visit.form) if visit.field("mode") == "elastic" else service["config"]["scaling"]
    return await shown(
        visit, "scaling.html", "scaling", status, service=service, decisions=decisions[:-51:-1], metrics=METRICS,
        rule=rule, **given,
    )  # fmt: skip


async def _save(visit: Visit) -> Response:
    """By a rule, or fixed."""
    try:
        if visit.field("mode") == "elastic":
            await visit.call("PUT", f"{_SERVICE}/scaling", forms.scaling(visit.form))
        else:
            nodes = {"nodes": forms.number(visit.field("nodes"))}
            await visit.call("PUT", f"{_SERVICE}/nodes", nodes)
    except (Invalid, Conflict) as error:
        return await _scaling(visit, error.status, error=error)
    return visit.go(f"/services/{visit.params['name']}/scaling", "scaled")


async def _simulate(visit: Visit) -> Response:
    """What the rule of the form makes of a series."""
    series = visit.field("series")
    body: dict[str, Any] = {"scaling": forms.scaling(visit.form), "nodes": forms.number(visit.field("nodes") or "1")}
    try:
        body["series"] = [_moment(number, line) for number, line in enumerate(_lines(series), 1)]
        simulated = await visit.call("POST", "/scaling/simulate", body)
    except Invalid as error:
        return await _scaling(visit, 400, error=error, series=series)
    return await _scaling(visit, simulated=simulated, series=series)


def _lines(series: str) -> list[str]:
    lines = [line for line in series.splitlines() if line.strip()]
    if len(lines) > MOST_LINES:
        raise Invalid(f"expected at most {MOST_LINES} lines", "series")
    return lines


def _moment(number: int, line: str) -> tuple[Any, dict[str, Any]]:
    """`10 concurrency=12 latency_ms=40`: seconds, and the metrics at that moment."""
    at, *told = line.replace(",", " ").split() or [""]
    if not told or any("=" not in one for one in told):
        raise Invalid(f"line {number}: expected SECONDS METRIC=VALUE ..., got {line[:64]!r}", "series")
    values = [one.split("=", 1) for one in told]
    return forms.number(at), {metric: forms.number(value) for metric, value in values}


PAGES = (
    Row("GET", f"{_SERVICE}/scaling", _scaling),
    Row("POST", f"{_SERVICE}/scaling", _save),
    Row("POST", f"{_SERVICE}/scaling/simulate", _simulate),
)
