"""What the operators' pages say, of one process or of all."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.fleet import FleetSummary
from gateway.models import Models
from gateway.observe import Observer

READY, METRICS, STATUS = "/readyz", "/metrics", "/statusz"

TYPES = {
    READY: "text/plain; charset=utf-8",
    METRICS: "text/plain; version=1.0.0; charset=utf-8",
    STATUS: "application/json",
}
"""Page to its content type."""


class Unreachable(Exception):
    """Who leads the gateway cannot be asked any more."""


class Whole(Protocol):
    """Whoever can speak for the gateway."""

    async def page(self, path: str, trusted: bool) -> tuple[int, str | bytes]:
        """A page's HTTP status and text, for who may know names or not. Raises Unreachable."""


class Alone:
    """One process that does everything."""

    def __init__(self, models: Models, observer: Observer, draining: Callable[[], bool]) -> None:
        self._models = models
        self._observer = observer
        self._draining = draining

    async def page(self, path: str, trusted: bool) -> tuple[int, str | bytes]:
        """A page's HTTP status and text."""
        if path == METRICS:
            return 200, self._observer.page()
        models, shadows = self._models, self._observer.shadows.reports()
        summary = FleetSummary(models.ready, self._draining(), tuple(models.describe()), dict(models.problems), shadows)
        return told(path, summary, trusted)


def told(path: str, summary: FleetSummary, trusted: bool) -> tuple[int, str | bytes]:
    """What the pages say that tell how the gateway stands."""
    if path == STATUS:
        page = {
            "ready": summary.ready,
            "draining": summary.draining,
            "models": summary.models,
            "problems": summary.problems,
            "shadows": summary.shadows,
        }
        if summary.processes:
            page |= {"generation": summary.generation, "processes": summary.processes}
        return 200, msgspec.json.encode(page)
    if summary.draining:
        return 503, "draining\n"
    if summary.ready:
        return 200, "ready\n"
    if not trusted:
        return 503, "not ready\n"
    waiting = [
        f"{one.name} {one.version}: {one.error or one.state}"
        for one in summary.models
        if one.error or one.state in ("START", "LOADING")
    ]
    waiting += [f"{name}: {problem}" for name, problem in summary.problems.items()]
    return 503, "".join(f"{line}\n" for line in ["not ready", *waiting])
