"""What becomes of an error, and what is left to do to a reply: the last steps before a caller is answered."""

import logging

from msgspec.structs import replace

from gateway.errors import BackendError, GatewayError, InferenceFailed, OutOfMemory, RateLimited, RequestError
from gateway.gate import Visit
from gateway.interfaces import Infer
from gateway.paths import Route
from gateway.trace import Trace
from gateway.types import Call, Reply

log = logging.getLogger("tensorgate.request")


def failure(route: Route, call: Call, trace: Trace, error: Exception) -> Reply:
    """Any error in the caller's dialect; what is not the caller's is logged."""
    note(trace, f"{call.method} {route.operation.path}", error)
    if isinstance(error, GatewayError):
        return route.adapter.encode_error(error, call)
    if isinstance(error, MemoryError):
        return route.adapter.encode_error(OutOfMemory("there is not enough memory for this request"), call)
    failed = InferenceFailed(f"internal error; the log has its reason under request {trace.id}")
    return route.adapter.encode_error(failed, call)


def note(trace: Trace, what: str, error: Exception) -> None:
    """Remember what is not the caller's mistake, and put in the log what nobody could foresee."""
    trace.failed = not isinstance(error, RequestError | RateLimited)
    if isinstance(error, BackendError):
        log.error("%s: %s", trace.id, error, exc_info=error.__cause__)
    elif not isinstance(error, GatewayError):
        log.error("%s: %s failed", trace.id, what, exc_info=error)


def whole(reply: Reply) -> bytes:
    """The body of an answer that is kept; only what `stream` encodes comes in parts."""
    assert isinstance(reply.body, bytes)
    return reply.body


def with_allowance(reply: Reply, operation: Infer, visit: Visit) -> Reply:
    """The reply, with what is left to the caller where the protocol has headers for it."""
    if operation.allowance is None or (allowance := visit.allowance) is None:
        return reply
    return replace(reply, headers=(*reply.headers, *operation.allowance(allowance)))
