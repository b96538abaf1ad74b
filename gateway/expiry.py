"""When services stop by themselves, and what those that do not run tell their callers."""

from collections.abc import Mapping

from gateway.config import ServiceConfig
from gateway.errors import NotReady, ServiceExpired, ServiceFailed, ServiceStopped
from gateway.routing import Service

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(duration: str) -> float:
    """What a duration such as `8h` comes to; 0 for an empty one, which means for ever."""
    return float(duration[:-1]) * UNITS[duration[-1]] if duration else 0.0


def starts(services: Mapping[str, ServiceConfig], before: Mapping[str, float], now: float) -> dict[str, float]:
    """Since when each service runs, if it does; one that ran `before` has run since then."""
    return {name: before.get(name, now) for name, service in services.items() if service.state == "running"}


def expiries(services: Mapping[str, ServiceConfig], since: Mapping[str, float]) -> dict[str, float]:
    """When each service stops, if it does: at the moment that is given, else its duration after its start."""
    found = {
        name: since[name] + seconds_of(service.duration)
        for name, service in services.items()
        if service.duration and name in since
    }
    given = {
        name: service.expires_at.timestamp() for name, service in services.items() if service.expires_at is not None
    }
    return found | given


def require_running(service: Service, now: float) -> None:
    """Raise what a caller of a service that does not run is told. `now` is Unix seconds, as `expires` is."""
    name = f"the service {service.name}"
    why = f": {service.reason}" if service.reason else ""
    if service.state == "expired" or (service.expires is not None and service.expires <= now):
        raise ServiceExpired(f"{name} has expired: the time that it was to run is over{why}")
    if service.state in ("stopped", "stopping"):
        raise ServiceStopped(f"{name} is stopped{why}")
    if service.state == "failed":
        raise ServiceFailed(f"{name} could not be started{why}")
    if service.state == "starting":
        raise NotReady(f"{name} is starting{why}", retry_after=1.0)
