"""TF Serving's statuses and its one error body."""

import orjson

from adapters.tfserving.render import cut
from gateway.errors import (
    BackendError,
    BodyTimeout,
    BodyTooLarge,
    CapacityError,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    LabelNotFound,
    MalformedBody,
    MethodNotAllowed,
    ModelExists,
    ModelNotFound,
    ModelNotReady,
    NotAcceptable,
    RateLimited,
    RequestError,
    RouteNotFound,
    SignatureNotFound,
    Unauthenticated,
    UnsupportedMedia,
    UserError,
    UserFailed,
)
from gateway.types import Call


class Unimplemented(RequestError):
    """A dtype that cannot be written in JSON here; TF Serving's canonical code of that name."""


class VersionOverflow(RequestError):
    """A version in the path that no 64-bit integer holds."""


STATUS: tuple[tuple[type[GatewayError], int], ...] = (
    (Unimplemented, 501),
    (LabelNotFound, 400),
    (ModelNotFound, 404),
    (ModelNotReady, 404),  # SPEC: TF Serving tells a model that is loading from an unknown one by its status only
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotAcceptable, 406),
    (BodyTimeout, 408),
    (ModelExists, 409),
    (BodyTooLarge, 413),
    (UnsupportedMedia, 415),
    (RequestError, 400),  # SPEC: also for unknown paths and wrong methods; TF Serving has no 404 or 405 for them
    (RateLimited, 429),
    (DeadlineExceeded, 504),
    (CapacityError, 503),
    (BackendError, 500),
)
"""The first class that fits decides."""

_VALID_PATHS = (
    "POST /v1/models/NAME[/versions/N|/labels/L]:predict|classify|regress, "
    "GET /v1/models/NAME[/versions/N|/labels/L][/metadata]"
)


NO_SIGNATURE = 'Serving signature name: "{}" not found in signature def'
NO_EXAMPLES_SIGNATURE = "No signature was found with the name: {}"
"""What predict, and what classify and regress, say of an unknown signature."""


def status_of(error: GatewayError) -> int:
    """The HTTP status."""
    if isinstance(error, UserError | UserFailed):
        return error.status
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def body_of(error: GatewayError, call: Call) -> bytes:
    """`{"error": text}`; for an unknown model also a hint, as TF Serving's words for it are matched by clients."""
    body = {"error": _text(error, call)}
    if isinstance(error, ModelNotFound | ModelNotReady) and error.model and not isinstance(error, LabelNotFound):
        body["hint"] = str(error)
    return orjson.dumps({name: text.encode("utf-8", "replace").decode() for name, text in body.items()})


def _text(error: GatewayError, call: Call) -> str:
    """TF Serving's words first, then what helps."""
    text = str(error)
    if isinstance(error, RouteNotFound | MethodNotAllowed):
        return f"Malformed request: {call.method} {call.raw_path[:256]}; valid are {_VALID_PATHS}"
    if isinstance(error, LabelNotFound):
        return f"Unrecognized servable version label: {cut(error.label)}; {text}"
    if isinstance(error, SignatureNotFound):
        name = cut(error.signature)
        own = text.startswith((NO_SIGNATURE.format(name), NO_EXAMPLES_SIGNATURE.format(name)))
        return text if own else f"{NO_SIGNATURE.format(name)}; {text}"  # a backend, too, may miss it
    if isinstance(error, ModelNotFound | ModelNotReady) and error.model:
        name = cut(error.model)
        wanted = f"Latest({name})" if error.version is None else f"Specific({name}, {error.version})"
        return f"Servable not found for request: {wanted}"
    if isinstance(error, MalformedBody) and not text.startswith("JSON"):
        return f"JSON Parse error: {text}"
    return text
