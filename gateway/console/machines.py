"""The machines and what uses them, and how the services do, in numbers."""

from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse, Response

from gateway.console.rendering import HEADERS
from gateway.console.visit import Row, Visit
from gateway.control.permissions import may


async def _machines(visit: Visit) -> Response:
    machines = await visit.call("GET", "/machines")
    models = await visit.call("GET", "/models")
    model = visit.query.get("accelerator", "")
    cards = sorted({card["model"] for one in machines for card in one["accelerators"]})
    if model:
        machines = [one for one in machines if any(card["model"] == model for card in one["accelerators"])]
    return visit.page(
        "machines.html", here="machines", machines=machines, models=models["models"], cards=cards, model=model,
        uses=list(_uses(visit)),
    )  # fmt: skip


def _uses(visit: Visit) -> Iterator[dict[str, Any]]:
    """What services ask of a machine, as far as the visitor may see them."""
    control = visit.calls.control
    for name, service in control.services.items():
        if service.state == "running" and may(visit.user, "view", service, control.config.gateway.sharing):
            yield {
                "name": name, "nodes": service.nodes, "elastic": service.scaling is not None,
                "threads": service.node.threads, "memory_mib": service.node.memory_mib, "device": service.node.device,
            }  # fmt: skip


async def _metrics(visit: Visit) -> Response:
    return visit.page("metrics.html", here="metrics")


async def _numbers(visit: Visit) -> Response:
    """Totals since the start, of which a page makes rates: by service, of those that the visitor may see."""
    control = visit.calls.control
    assert control.fleet is not None
    text = (await control.fleet.metrics()).decode()
    sharing = control.config.gateway.sharing
    seen = {name for name, one in control.services.items() if may(visit.user, "view", one, sharing)}
    services: dict[str, dict[str, Any]] = {name: {"requests": 0, "errors": 0, "buckets": {}} for name in sorted(seen)}
    process: dict[str, float] = {"in_flight": 0, "memory": 0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            service = services.get(sample.labels.get("service", ""))
            match sample.name:
                case "tensorgate_requests_in_flight":
                    process["in_flight"] += sample.value
                case "process_resident_memory_bytes":
                    process["memory"] += sample.value
                case "tensorgate_requests_total" if service is not None:
                    service["requests"] += sample.value
                    if not sample.labels["code"].startswith("2"):
                        service["errors"] += sample.value
                case "tensorgate_request_seconds_bucket" if service is not None:
                    bound = sample.labels["le"]
                    service["buckets"][bound] = service["buckets"].get(bound, 0) + sample.value
    variants = {
        f"{service}/{variant}": {"requests": tally.requests, "errors": tally.failures}
        for (service, variant), tally in (await control.fleet.variants()).items()
        if service in seen
    }
    return JSONResponse({"services": services, "variants": variants, **process}, headers=HEADERS)


PAGES = (
    Row("GET", "/machines", _machines),
    Row("GET", "/metrics", _metrics),
    Row("GET", "/metrics.json", _numbers),
)
