"""Every endpoint of the control plane in one table, and a call of one by whoever has found out who is calling."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.control import governing, releasing, serving
from gateway.control.accounts import User
from gateway.control.endpoint import Ask, Endpoint, Reply
from gateway.control.errors import Invalid, NotAllowed
from gateway.control.plane import Control
from gateway.hints import in_words

ENDPOINTS: tuple[Endpoint, ...] = (*serving.ENDPOINTS, *releasing.ENDPOINTS, *governing.ENDPOINTS)

_BY_NAME = {(one.method, one.path): one for one in ENDPOINTS}


def check_caller(endpoint: Endpoint, user: User) -> None:
    """Raise NotAllowed unless the endpoint is for such users."""
    if endpoint.who == "admin" and user.role != "admin":
        raise NotAllowed("this is for administrators only")


async def answered(endpoint: Endpoint, ask: Ask) -> Reply:
    """The answer to a call whose body is decoded. Raises ControlError."""
    for name in ask.query:
        if name not in endpoint.query:
            known = ", ".join(endpoint.query) or "none"
            raise Invalid(f"unknown; there are: {known}", name[:64])
    given = await endpoint.handler(ask)
    return given if isinstance(given, Reply) else Reply(given, endpoint.status)


def mistake(error: msgspec.ValidationError) -> Invalid:
    """What is wrong with a body, and in which field."""
    text, _, path = str(error).partition(" - at `")
    return Invalid(in_words(text), path.rstrip("`").removeprefix("$").lstrip("."))


class Calls:
    """Calls made in this process: the same endpoints, and so the same permissions and errors, as over HTTP."""

    def __init__(self, control: Control) -> None:
        self.control = control

    async def __call__(
        self,
        caller: User,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        if_match: str = "",
        **params: str,
    ) -> Any:
        """The answer's body, as data; `path` is the endpoint's own, its fields are in `params`. Raises ControlError."""
        endpoint = _BY_NAME[method, path]
        check_caller(endpoint, caller)
        if endpoint.takes is not None:
            try:
                body = msgspec.convert({} if body is None else body, endpoint.takes)
            except msgspec.ValidationError as error:
                raise mistake(error) from None
        reply = await answered(endpoint, Ask(self.control, caller, params, query or {}, body, if_match))
        return msgspec.to_builtins(reply.body)
