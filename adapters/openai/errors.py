"""OpenAI's statuses, error types and codes, and its one error body, whole or inside a stream.

Source: OpenAI's API reference, error codes, and openai-python's mapping of statuses to exceptions.
"""

import re
from math import ceil
from typing import Any

import orjson

from adapters._error_headers import error_headers
from gateway.errors import (
    BackendError,
    BodyTimeout,
    BodyTooLarge,
    CapacityError,
    ContextTooLong,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    InvalidTensor,
    MethodNotAllowed,
    ModelExists,
    ModelNotFound,
    NotAcceptable,
    NotReady,
    Overloaded,
    RateLimited,
    RequestError,
    RouteNotFound,
    ServiceExpired,
    ServiceFailed,
    ServiceStopped,
    Unauthenticated,
    UnsupportedMedia,
    UpstreamRefused,
    UserError,
    UserFailed,
)
from gateway.types import Allowance, Call, Reply

INVALID, LIMITED, SERVER = "invalid_request_error", "rate_limit_error", "server_error"

CODES: tuple[tuple[type[GatewayError], int, str, str | None], ...] = (
    (RouteNotFound, 404, INVALID, None),
    (MethodNotAllowed, 405, INVALID, None),
    (ModelNotFound, 404, INVALID, "model_not_found"),
    (Unauthenticated, 401, INVALID, "invalid_api_key"),
    (Forbidden, 403, INVALID, "permission_denied"),
    (NotAcceptable, 406, INVALID, None),
    (BodyTimeout, 408, INVALID, None),
    (ModelExists, 409, INVALID, None),
    (BodyTooLarge, 413, INVALID, None),
    (UnsupportedMedia, 415, INVALID, None),
    (RequestError, 400, INVALID, None),
    (RateLimited, 429, LIMITED, "rate_limit_exceeded"),
    (Overloaded, 429, LIMITED, "rate_limit_exceeded"),
    (DeadlineExceeded, 504, SERVER, "timeout"),
    (ServiceStopped, 503, SERVER, "service_stopped"),
    (ServiceExpired, 503, SERVER, "service_expired"),
    (ServiceFailed, 503, SERVER, "service_failed"),
    (NotReady, 503, SERVER, "model_not_ready"),
    (CapacityError, 503, SERVER, "overloaded"),
    (BackendError, 500, SERVER, "internal_error"),
    (GatewayError, 500, SERVER, "internal_error"),
)
"""HTTP status, type and code; the first class that fits decides."""

_FIELD = re.compile(r"(?:parameters\.)?((?:messages|prompt|input|text|(?<=\.)\w+)[\w.\[\]]*): ")
"""How a backend names the parameter, or the input, that it refuses."""
_INPUTS = {"chat/completions": "messages", "embeddings": "input"}
"""What the field is called that a backend knows by another name; `prompt` elsewhere."""
_INNER = {"messages", "prompt", "input", "text", "prompt_token_ids"}
_SIDES = {"width", "height"}
"""What a picture's `size` is made of."""
_RETRY_AFTER = ("Retry-After", "1")


class Refusal(RequestError):
    """A request that OpenAI's API refuses, with the field that is wrong and the word for why."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


def encode(error: GatewayError, call: Call) -> Reply:
    """The status, the body, and what headers the status asks for."""
    headers = error_headers(error)
    if isinstance(error, RateLimited) and error.limit:
        headers = (*headers, *allowance_headers(Allowance(error.limit, 0, error.retry_after or 0.0)))
    if isinstance(error, CapacityError) and error.retry_after is None and status_of(error, call) in (429, 503):
        headers = (*headers, _RETRY_AFTER)
    return Reply(orjson.dumps({"error": describe(error, call)}), status_of(error, call), headers=headers)


def allowance_headers(allowance: Allowance) -> tuple[tuple[str, str], ...]:
    """SPEC: what is left of the requests; a time is written as `1s` or `120ms`."""
    milliseconds = ceil(allowance.reset_seconds * 1000)
    reset = f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000:g}s"
    return (
        ("x-ratelimit-limit-requests", str(allowance.limit)),
        ("x-ratelimit-remaining-requests", str(allowance.remaining)),
        ("x-ratelimit-reset-requests", reset),
    )


def status_of(error: GatewayError, call: Call) -> int:
    """The HTTP status."""
    if isinstance(error, Refusal | UserError | UserFailed):
        return error.status
    if _is_unnamed(error, call):
        return 400
    return _row(error)[0]


def describe(error: GatewayError, call: Call) -> dict[str, Any]:
    """The object under `error`: always message, type, param and code."""
    _, type_, code = _row(error)
    param = None
    message = str(error)
    if isinstance(error, Refusal | UpstreamRefused):
        param, code = error.param, error.code
    elif _is_unnamed(error, call):
        param, code = "model", "missing_required_parameter"
        message = f"you must name a model in 'model': {message}"
    elif isinstance(error, ModelNotFound):
        param = "model"
    elif isinstance(error, InvalidTensor):
        param, code, message = _refused(error, call)
    return {"message": message.encode("utf-8", "replace").decode(), "type": type_, "param": param, "code": code}


def _refused(error: InvalidTensor, call: Call) -> tuple[str | None, str, str]:
    """The field that a backend refuses, by the name that the client knows, why, and the text with that name."""
    text = str(error)
    code = "context_length_exceeded" if isinstance(error, ContextTooLong) else "invalid_value"
    named = _FIELD.match(text)
    field = named[1] if named else None
    if code != "invalid_value" or field in _INNER:
        field = next((name for path, name in _INPUTS.items() if call.raw_path.endswith(path)), "prompt")
    if field in _SIDES:
        field = "size"
    return field, code, text if named is None else f"{field}: {text[named.end() :]}"


def internal(request_id: str) -> dict[str, Any]:
    """What is told of a failure that has no class."""
    message = f"internal error; the log has its reason under request {request_id}"
    return {"message": message, "type": SERVER, "param": None, "code": "internal_error"}


def _is_unnamed(error: GatewayError, call: Call) -> bool:
    """SPEC: a call that names no model lacks a parameter; it does not ask for one that is not there."""
    return isinstance(error, ModelNotFound) and not error.model and "/models/" not in call.raw_path


def _row(error: GatewayError) -> tuple[int, str, str | None]:
    return next((status, type_, code) for kind, status, type_, code in CODES if isinstance(error, kind))
