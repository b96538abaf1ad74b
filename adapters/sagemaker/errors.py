"""Both dialects of an error: the container's plain status, and the runtime API's, which wraps it in a ModelError.

Source: the rest-json protocol and the sagemaker-runtime model of botocore; multi-model-server (ErrorResponse) for the
container's body; Amazon SageMaker developer guide, "Use Your Own Inference Code".
"""

import orjson

from adapters._error_headers import error_headers
from gateway.errors import (
    BackendError,
    BodyTimeout,
    BodyTooLarge,
    CapacityError,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    MalformedBody,
    MethodNotAllowed,
    ModelExists,
    ModelNotFound,
    NotAcceptable,
    NotReady,
    OutOfMemory,
    Overloaded,
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

ACCOUNT = "000000000000"
"""Where AWS would name an account."""

_LONGEST = 2048
"""Characters of a message that AWS's clients take."""


class InvalidParameter(RequestError):
    """A header, a query parameter or an endpoint's name that the API does not allow."""


CONTAINER: tuple[tuple[type[GatewayError], int, str], ...] = (
    (RouteNotFound, 404, "ResourceNotFoundException"),
    (MethodNotAllowed, 405, "MethodNotAllowedException"),
    (ModelNotFound, 404, "ModelNotFoundException"),
    (Unauthenticated, 401, "UnauthorizedException"),
    (Forbidden, 403, "ForbiddenException"),
    (NotAcceptable, 406, "NotAcceptableException"),
    (BodyTimeout, 408, "RequestTimeoutException"),
    (ModelExists, 409, "ConflictStatusException"),
    (BodyTooLarge, 413, "RequestEntityTooLargeException"),
    (UnsupportedMedia, 415, "UnsupportedMediaTypeException"),
    (RequestError, 400, "BadRequestException"),
    (RateLimited, 429, "TooManyRequestsException"),
    (DeadlineExceeded, 504, "GatewayTimeoutException"),
    (OutOfMemory, 507, "InsufficientMemoryException"),
    (CapacityError, 503, "ServiceUnavailableException"),
    (BackendError, 500, "InternalServerException"),
    (GatewayError, 500, "InternalServerException"),
)
"""Status and type on the container's paths; the first class that fits decides."""

RUNTIME: tuple[tuple[type[GatewayError], int, str], ...] = (
    (RouteNotFound, 404, "UnknownOperationException"),
    (MethodNotAllowed, 405, "UnknownOperationException"),
    (InvalidParameter, 400, "ValidationError"),
    (ModelNotFound, 400, "ValidationError"),
    (Unauthenticated, 403, ""),
    (Forbidden, 403, "AccessDeniedException"),
    (BodyTimeout, 408, "RequestTimeoutException"),
    (BodyTooLarge, 413, ""),
    (Overloaded, 503, "ServiceUnavailable"),
    (RateLimited, 429, "ThrottlingException"),
    (ServiceStopped, 400, "ValidationError"),  # SPEC: as for an endpoint that is not InService: repeating cannot help
    (ServiceExpired, 400, "ValidationError"),
    (ServiceFailed, 400, "ValidationError"),
    (NotReady, 429, "ModelNotReadyException"),
)
"""Status and name below /endpoints/; every other error is the model's, and wrapped.

SPEC: a status that clients repeat (429, 500 and above) only where repeating is safe and may help.
"""

_TIMED_OUT = "Your invocation timed out while waiting for a response from container primary."


def is_runtime(call: Call) -> bool:
    """Whether the caller speaks the runtime API, and not to a container."""
    return "/endpoints/" in call.raw_path


def encode(error: GatewayError, call: Call) -> Reply:
    """The error in the dialect of the call's path."""
    return _runtime(error, call) if is_runtime(call) else _container(error)


def plain(text: str) -> str:
    """SPEC: one line of ASCII, since it is copied into headers, log lines and a field of limited length."""
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode()[:_LONGEST]


def _container(error: GatewayError) -> Reply:
    status, kind = _find(CONTAINER, error) or (500, "InternalServerException")
    if isinstance(error, UserError | UserFailed):
        status = error.status
    body = orjson.dumps({"code": status, "type": kind, "message": plain(str(error))})
    return Reply(body, status, headers=error_headers(error))


def _find(table: tuple[tuple[type[GatewayError], int, str], ...], error: GatewayError) -> tuple[int, str] | None:
    return next(((status, name) for kind, status, name in table if isinstance(error, kind)), None)


# The runtime API...


def _runtime(error: GatewayError, call: Call) -> Reply:
    found = _find(RUNTIME, error)
    if isinstance(error, MalformedBody) and call.raw_path.endswith("/async-invocations"):
        found = (400, "ValidationError")  # its location; what is in the body is judged later
    if found is None:
        return _model_error(error, call)
    status, name = found
    if isinstance(error, Unauthenticated):
        name, text = _credential_fault(error, call)
        return _rest_json(call, status, name, {"message": text}, error_headers(error))
    text = plain(str(error))
    if isinstance(error, ModelNotFound) and error.model:
        text = plain(f"Endpoint {error.model[:256]} of account {ACCOUNT} not found. {text}")
    return _rest_json(call, status, name, {"Message": text}, error_headers(error))


def _credential_fault(error: Unauthenticated, call: Call) -> tuple[str, str]:
    authorization = call.header(b"authorization")
    if authorization is None and call.header(b"x-tensorgate-key") is None:
        return "MissingAuthenticationTokenException", "Missing Authentication Token"
    signed = (authorization or "").startswith("AWS4-")
    return "InvalidSignatureException" if signed else "UnrecognizedClientException", plain(str(error))


def _model_error(error: GatewayError, call: Call) -> Reply:
    status, _ = _find(CONTAINER, error) or (500, "")
    if isinstance(error, UserError | UserFailed):
        status = error.status
    text = plain(str(error))
    if isinstance(error, DeadlineExceeded):
        status, text = 0, _TIMED_OUT  # SPEC: the real service says 0 where no answer came
    side = "client" if 400 <= status < 500 else "server"
    name = call.params.get("model", "-")
    message = f'Received {side} error ({status}) from primary with message "{text}".'
    members: dict[str, str | int] = {
        "Message": f"{message[:_LONGEST]} See request {call.id or '-'} in the gateway's log for more information.",
        "OriginalMessage": text,
        "OriginalStatusCode": status,
        "LogStreamArn": f"arn:aws:logs:local:{ACCOUNT}:log-group:/tensorgate/Endpoints/{name}:log-stream:{call.id}",
    }
    return _rest_json(call, 424, "ModelError", members, ())


def _rest_json(
    call: Call, status: int, name: str, members: dict[str, str | int], headers: tuple[tuple[str, str], ...]
) -> Reply:
    named = (("x-amzn-ErrorType", name),) if name else ()
    return Reply(orjson.dumps(members), status, headers=(*named, ("x-amzn-RequestId", call.id), *headers))
