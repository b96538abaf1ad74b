"""The protocol's statuses and its one error body, over HTTP and over gRPC.

Source: Open Inference Protocol, "Inference Response JSON Error Object"; the texts for unknown models are MLServer's.
"""

from math import ceil

import orjson

from adapters._error_headers import error_headers
from adapters.v2.elsewhere import advice
from gateway.errors import (
    BackendError,
    BodyTimeout,
    BodyTooLarge,
    CapacityError,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    LabelNotFound,
    MethodNotAllowed,
    ModelExists,
    ModelNotFound,
    NotAcceptable,
    OutOfMemory,
    RateLimited,
    RequestError,
    RouteNotFound,
    ServiceExpired,
    ServiceFailed,
    ServiceStopped,
    Unauthenticated,
    UnsupportedMedia,
    UserError,
    UserFailed,
)
from gateway.types import Call, Reply

GRPC = "GRPC"
"""The method of calls that came over gRPC."""

_LONGEST = 2048
"""Characters of a text that travels in a header."""

CODES: tuple[tuple[type[GatewayError], int, int], ...] = (
    (RouteNotFound, 404, 12),
    (MethodNotAllowed, 405, 12),
    (ModelNotFound, 404, 5),
    (Unauthenticated, 401, 16),
    (Forbidden, 403, 7),
    (NotAcceptable, 406, 3),
    (BodyTimeout, 408, 4),
    (ModelExists, 409, 6),
    (BodyTooLarge, 413, 8),
    (UnsupportedMedia, 415, 3),
    (RequestError, 400, 3),
    (RateLimited, 429, 8),
    (DeadlineExceeded, 504, 4),
    (OutOfMemory, 503, 8),
    (ServiceStopped, 503, 9),
    (ServiceExpired, 503, 9),
    (ServiceFailed, 503, 9),
    (CapacityError, 503, 14),
    (BackendError, 500, 13),
    (GatewayError, 500, 13),
)
"""HTTP status and gRPC code; the first class that fits decides."""


def encode(error: GatewayError, call: Call) -> Reply:
    """The error in the form of the call's transport."""
    if isinstance(error, RouteNotFound | MethodNotAllowed | ModelNotFound) and (instead := advice(call)):
        error = RouteNotFound(instead)
    status, code = next((status, code) for kind, status, code in CODES if isinstance(error, kind))
    if isinstance(error, UserError | UserFailed):
        status = error.status
    text = text_of(error)
    if call.method == GRPC:
        return Reply(b"", status, "application/grpc", _trailers(error, code, text))
    body = orjson.dumps({"error": text.encode("utf-8", "replace").decode()})
    return Reply(body, status, headers=error_headers(error))


def text_of(error: GatewayError) -> str:
    """For an unknown model the words that clients know, then what helps."""
    if not isinstance(error, ModelNotFound) or not error.model or isinstance(error, LabelNotFound):
        return str(error)
    model = error.model[:128]
    if error.version is not None:
        return f"Model {model} with version {error.version} not found: {error}"
    return f"Model {model} not found: {error}"


def _trailers(error: GatewayError, code: int, text: str) -> tuple[tuple[str, str], ...]:
    trailers = (("grpc-status", str(code)), ("grpc-message", text[:_LONGEST].encode("utf-8", "replace").decode()))
    if isinstance(error, CapacityError) and error.retry_after is not None:
        return (*trailers, ("grpc-retry-pushback-ms", str(ceil(error.retry_after * 1000))))
    return trailers
