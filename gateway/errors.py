"""Everything that can go wrong, as one tree without HTTP; each adapter maps it to its own dialect.

GatewayError
  RequestError                the caller's mistake
    RouteNotFound             no operation has this path
    MethodNotAllowed          the path exists, with other methods
    MalformedBody             not the protocol's grammar
    InvalidTensor             well formed, but not what the signature takes
      ContextTooLong          more tokens than a language model takes
    InvalidHeader             a header of the gateway's own with a value that it cannot have
    UnsupportedMedia          a content type or coding nobody here reads
    NotAcceptable             no offered form is acceptable
    BodyTooLarge              over a limit on bytes, elements or chunks
    BodyTimeout               the body did not arrive in time
    ModelNotFound             no such service, model or version
      LabelNotFound           no such version label
    ModelExists               a model of that name is loaded already
    SignatureNotFound         the model has no signature of that name
    Unauthenticated           no credential, or not a valid one
    Forbidden                 a valid credential, but not for this
    UserError                 a user's class refused the request, with a status of its own
      UpstreamRefused         the server that a model is forwarded to refused it
  CapacityError               right request, wrong moment
    Overloaded
    RateLimited
    NotReady                  known, but not serving yet
      ModelNotReady           a version of the model is still being loaded
      ServiceStopped          somebody has stopped it
      ServiceExpired          the time that it was to run is over
      ServiceFailed           it could not be started
    DeadlineExceeded
    OutOfMemory               no room to load or run the model
  BackendError                the model's or the server's fault
    InferenceFailed
    UserFailed                a user's class failed, with a status of its own
    LoadFailed                a version could not be made ready

`str(error)` is safe to show to any client: no path, process id or traceback is ever in it.
"""

from collections.abc import Sequence
from typing import Any

BAD_DATA = "MICROSERVICE_BAD_DATA"
INTERNAL_ERROR = "MICROSERVICE_INTERNAL_ERROR"
"""Seldon's reasons, which a user's class may replace by its own."""


class GatewayError(Exception):
    """The root; never raised itself."""


class RequestError(GatewayError):
    """The caller's mistake."""


class RouteNotFound(RequestError):
    """No operation has this path."""


class MethodNotAllowed(RequestError):
    """The path exists, but not with this method."""

    def __init__(self, message: str, allowed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class MalformedBody(RequestError):
    """The body is not in the protocol's grammar."""


class InvalidTensor(RequestError):
    """Well formed, but not a tensor that the signature takes."""


class ContextTooLong(InvalidTensor):
    """A text has more tokens than the language model takes."""


class InvalidHeader(RequestError):
    """A header of the gateway's own has a value that it cannot have."""


class UnsupportedMedia(RequestError):
    """A content type or coding that nobody here reads."""


class NotAcceptable(RequestError):
    """None of the forms on offer is acceptable to the caller."""


class BodyTooLarge(RequestError):
    """Over a limit on bytes, elements or chunks."""


class BodyTimeout(RequestError):
    """The body did not arrive in time."""


class ModelNotFound(RequestError):
    """No such service, model or version. `model` is empty when the request named none."""

    def __init__(self, message: str, model: str = "", version: int | None = None) -> None:
        super().__init__(message)
        self.model = model
        self.version = version


class LabelNotFound(ModelNotFound):
    """No version of the model carries this label."""

    def __init__(self, message: str, model: str, label: str) -> None:
        super().__init__(message, model)
        self.label = label


class ModelExists(RequestError):
    """A model of that name is loaded already."""


class SignatureNotFound(RequestError):
    """The model has no signature of this name."""

    def __init__(self, message: str, signature: str) -> None:
        super().__init__(message)
        self.signature = signature


class Unauthenticated(RequestError):
    """No credential, or one that is not valid."""


class Forbidden(RequestError):
    """A valid credential, but not for this service."""


class UserError(RequestError):
    """A user's class refused the request; `status` is 400 to 499 and counts in protocols that have statuses.

    `body`, where there is one, is the JSON value that the class wants answered.
    """

    def __init__(self, message: str, status: int = 400, reason: str = BAD_DATA, body: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.body = body


class UpstreamRefused(UserError):
    """The server that a model is forwarded to refused the request, with a status of its own."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, status)
        self.param = param
        """The field that was wrong, as that server names it."""
        self.code = code


class CapacityError(GatewayError):
    """The right request at the wrong moment; it may be repeated."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(CapacityError):
    """No room in the queue."""


class RateLimited(CapacityError):
    """The caller asks more often than allowed."""

    def __init__(self, message: str, retry_after: float | None = None, limit: int = 0) -> None:
        super().__init__(message, retry_after)
        self.limit = limit
        """Requests a second, where that is what was exceeded."""


class NotReady(CapacityError):
    """Known, but not serving yet."""


class ModelNotReady(NotReady):
    """A version of the model is still being loaded, and none answers in its place."""

    def __init__(
        self, message: str, model: str = "", version: int | None = None, retry_after: float | None = 1.0
    ) -> None:
        super().__init__(message, retry_after)
        self.model = model
        self.version = version


class ServiceStopped(NotReady):
    """Somebody has stopped the service."""


class ServiceExpired(NotReady):
    """The time that the service was to run is over."""


class ServiceFailed(NotReady):
    """The service could not be started."""


class DeadlineExceeded(CapacityError):
    """The answer could not come in time."""


class OutOfMemory(CapacityError):
    """No room to load or run the model."""


class BackendError(GatewayError):
    """The model's or the server's fault."""


class InferenceFailed(BackendError):
    """The model could not answer this request."""


class UserFailed(BackendError):
    """A user's class failed on purpose: as UserError, with a status from 500 to 599."""

    def __init__(self, message: str, status: int = 500, reason: str = INTERNAL_ERROR, body: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.body = body


class LoadFailed(BackendError):
    """A version could not be made ready to serve."""
