"""The machines and what uses them, and how the services do, in numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse, Response

from gateway.console.rendering import HEADERS
from gateway.console.visit import Row, Visit
from gateway.control.permissions import may


class Use(Struct, frozen=True):
    """What a running service takes of the machine."""

    name: str
    nodes: int
    on_card: bool
    """Whether its model runs on an accelerator."""
    waits: bool
    """Whether it is to run on one, and does not."""


async def _machines(visit: Visit) -> Response:
    machines = await visit.call("GET", "/machines")
    models = (await visit.call("GET", "/models"))["models"]
    uses = list(_uses(visit, models))
    model = visit.query.get("accelerator", "")
    cards = sorted({card["model"] for one in machines for card in one["accelerators"]})
    if model:
        machines = [one for one in machines if any(card["model"] == model for card in one["accelerators"])]
    queued = sum(use.nodes for use in uses if use.waits)
    return visit.page(
        "machines.html", here="machines", machines=machines, models=models, cards=cards, model=model, uses=uses,
        queued=queued,
    )  # fmt: skip


def _uses(visit: Visit, models: Sequence[Mapping[str, Any]]) -> Iterator[Use]:
    """Of the services that the visitor may see."""
    control = visit.calls.control
    on_cards = {one["name"] for one in models if one["provider"] == "CUDA"}
    for name, service in control.services.items():
        if service.state == "running" and may(visit.user, "view", service, control.config.gateway.sharing):
            on_card = (service.model or name) in on_cards
            yield Use(name, service.nodes, on_card, service.node.device == "cuda" and not on_card)


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
