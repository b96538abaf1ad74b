"""Who may come in: what a call's key opens, said before its body is read."""

from gateway.grants import DESCRIBE, INFER, Grant
from gateway.interfaces import Infer, Manage, Ready
from gateway.paths import Route
from gateway.plane import Plane
from gateway.trace import Trace
from gateway.types import Call


async def granted(plane: Plane, route: Route, call: Call, trace: Trace) -> Grant | None:
    """What the call's key opens, where that may take a while to be found; None where it need not."""
    if not plane.auth.has_slow or isinstance(route.operation, Manage):
        return None
    reachable = plane.directory.reachable(route, call)
    return await plane.auth.grant(call, reachable, trace.peer, route.protocol, _asked(route))


def admit(plane: Plane, route: Route, call: Call, trace: Trace, opened: Grant | None = None) -> Grant:
    """What the call's key opens; raises Unauthenticated or Forbidden if that is nothing that it can mean."""
    auth, operation = plane.auth, route.operation
    if opened is None:
        opened = auth.opened(call, route.protocol, _asked(route))
    if isinstance(operation, Manage):
        auth.admit_control(call)
    elif auth.protects and not isinstance(operation, Ready):
        reachable = plane.directory.reachable(route, call)
        if len(reachable) == 1:
            trace.meant = reachable[0].name
        auth.admit_any(call, opened, reachable)
    trace.key = opened.key
    return opened


def _asked(route: Route) -> str:
    return INFER if isinstance(route.operation, Infer) else DESCRIBE
