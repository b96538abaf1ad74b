"""Errors in both of Seldon's forms: the wrapper's, for what is about the message or the model, and the executor's.

Source: seldon-core, python/seldon_core/flask_utils.py (SeldonMicroserviceException) and executor/api/rest/server.go.
"""

import json
from typing import Any

import orjson

from gateway.errors import (
    BAD_DATA,
    INTERNAL_ERROR,
    BackendError,
    BodyTimeout,
    BodyTooLarge,
    CapacityError,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    LoadFailed,
    MethodNotAllowed,
    ModelExists,
    ModelNotFound,
    NotAcceptable,
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

STATUS: tuple[tuple[type[GatewayError], int, str], ...] = (
    (RouteNotFound, 404, "NOT_FOUND"),
    (MethodNotAllowed, 405, "METHOD_NOT_ALLOWED"),
    (ModelNotFound, 404, "MODEL_NOT_FOUND"),
    (Unauthenticated, 401, "UNAUTHENTICATED"),
    (Forbidden, 403, "FORBIDDEN"),
    (NotAcceptable, 406, "NOT_ACCEPTABLE"),
    (BodyTimeout, 408, "BODY_TIMEOUT"),
    (ModelExists, 409, "MODEL_EXISTS"),
    (BodyTooLarge, 413, "BODY_TOO_LARGE"),
    (UnsupportedMedia, 415, "UNSUPPORTED_MEDIA"),
    (RequestError, 400, BAD_DATA),
    (RateLimited, 429, "RATE_LIMITED"),
    (DeadlineExceeded, 504, "DEADLINE_EXCEEDED"),
    (ServiceStopped, 503, "SERVICE_STOPPED"),
    (ServiceExpired, 503, "SERVICE_EXPIRED"),
    (ServiceFailed, 503, "SERVICE_FAILED"),
    (CapacityError, 503, "UNAVAILABLE"),
    (LoadFailed, 500, "LOAD_FAILED"),
    (BackendError, 500, INTERNAL_ERROR),
    (GatewayError, 500, INTERNAL_ERROR),
)
"""Status and reason; the first class that fits decides."""


class BadMetric(BackendError):
    """The model's metrics are not what Seldon takes for metrics."""


class BadMetadata(BackendError):
    """What the model says of itself is not in the wrapper's form."""


_REASONS: dict[type[GatewayError], str] = {
    BadMetric: "MICROSERVICE_BAD_METRIC",
    BadMetadata: "MICROSERVICE_BAD_METADATA",
}


def encode(error: GatewayError) -> tuple[bytes, int]:
    """Body and status."""
    status, reason = next((status, reason) for kind, status, reason in STATUS if isinstance(error, kind))
    if isinstance(error, UserError | UserFailed):
        if error.body is not None:
            return json.dumps(error.body).encode(), error.status
        return _wrapped(str(error), error.reason), error.status
    reason = _REASONS.get(type(error), reason)
    if reason.startswith("MICROSERVICE_"):
        return _wrapped(str(error), reason), status
    return orjson.dumps(_failure(str(error), status, reason)), status


def _wrapped(info: str, reason: str) -> bytes:
    """SPEC: the wrapper's code is always -1 and its status always 1, whatever the HTTP status."""
    text = info.encode("utf-8", "replace").decode()
    return orjson.dumps({"status": {"code": -1, "info": text, "reason": reason, "status": 1}})


def _failure(info: str, status: int, reason: str) -> dict[str, Any]:
    """SPEC: the executor's own errors have the HTTP status as their code, and the name FAILURE."""
    return {"status": {"code": status, "info": info, "reason": reason, "status": "FAILURE"}}
