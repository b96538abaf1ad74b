"""What an endpoint of the control API is: a row of a table, from which the API, its document and its tests are made."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.config import ServiceConfig
from gateway.control.accounts import User
from gateway.control.errors import Invalid, Stale
from gateway.control.permissions import Action, require
from gateway.control.plane import Control

Who = Literal["anyone", "member", "admin"]

PREFIX = "/control/v1"


class Ask(Struct, frozen=True):
    """One call, its caller known."""

    control: Control
    user: User
    params: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    """As the endpoint's `takes` has it."""
    if_match: str = ""

    def service(self, action: Action) -> tuple[str, ServiceConfig]:
        """The service that the path names. Raises NotFound, NotAllowed or Stale."""
        name = self.params["name"]
        service = self.control.service(name)
        require(self.user, action, name, service, self.control.config.gateway.sharing)
        if self.if_match and self.if_match not in ("*", etag(service)):
            raise Stale("the service has been changed since: read it again, and send its new ETag in If-Match")
        return name, service

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A number of the query. Raises Invalid."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 18 and least <= int(text) <= most):
            raise Invalid(f"expected a whole number from {least} to {most}, got {text[:32]!r}", name)
        return int(text)


class Reply(Struct, frozen=True):
    """An answer that has more than a body."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = {}


Handler = Callable[[Ask], Awaitable[Any]]


class Endpoint(Struct, frozen=True):
    """One method of one path below PREFIX."""

    method: str
    path: str
    summary: str
    who: Who
    handler: Handler
    takes: Any = None
    """The type of the body; None for no body."""
    gives: Any = None
    """The type of the answer's body."""
    action: Action | None = None
    """What the caller must be allowed to do with the service that the path names."""
    query: tuple[str, ...] = ()
    status: int = 200

    @property
    def name(self) -> str:
        """For programs that are made from the document."""
        parts = [part.strip("{}") for part in self.path.split("/") if part]
        return "_".join([self.method.lower(), *parts]).replace("-", "_")


def etag(service: ServiceConfig) -> str:
    """Changes when the service does."""
    return f'"{hashlib.sha256(msgspec.json.encode(service)).hexdigest()[:16]}"'
