"""Passes: what lets the control plane call a service for somebody who has signed in, without a key of the service.

One is made for one call, is good for one service and for a short while, and never leaves this machine.
"""

import base64
import hashlib
import hmac
import secrets
import socket
from collections.abc import Callable
from time import monotonic

import msgspec
from msgspec import Struct

from gateway.grants import Opening

PREFIX = "tg_pass."
"""No key begins so: those that are made here have no full stop, and chosen ones may not begin with `tg_`."""
GOOD_SECONDS = 300.0
"""From the call's first byte until its key is looked at; for each message of a websocket, that is all its life."""


class _Content(Struct, frozen=True, array_like=True):
    service: str
    bearer: str
    ends: float


class Passes:
    """Makes passes, and reads those that were made with the same secret, in whichever process."""

    def __init__(self, secret: bytes = b"", clock: Callable[[], float] = monotonic) -> None:
        self.secret = secret or secrets.token_bytes(32)
        # NOTE: the monotonic clock is one for all processes of a machine, and nobody can put it back.
        self._clock = clock

    def derived(self, purpose: bytes) -> bytes:
        """Another secret that the processes share."""
        return hmac.digest(self.secret, purpose, hashlib.sha256)

    def issue(self, service: str, bearer: str) -> str:
        """A pass to that service, for that user."""
        content = msgspec.json.encode(_Content(service, bearer, self._clock() + GOOD_SECONDS))
        text = base64.urlsafe_b64encode(content).decode()
        return f"{PREFIX}{text}.{self._sign(text)}"

    def opening(self, code: str) -> Opening | None:
        """What the pass opens; None for what is none, or is over."""
        if not code.startswith(PREFIX):
            return None
        text, _, signature = code.removeprefix(PREFIX).partition(".")
        if not hmac.compare_digest(self._sign(text).encode(), signature.encode("latin-1")):
            return None
        content = msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Content)
        return Opening(content.service, content.bearer) if self._clock() < content.ends else None

    def _sign(self, text: str) -> str:
        return hmac.new(self.secret, text.encode("latin-1"), hashlib.sha256).hexdigest()


class Entrance(Struct, frozen=True):
    """Where the control plane reaches the services of a fleet, as their callers do."""

    host: str
    port: int
    passes: Passes

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def entrance(sock: socket.socket, passes: Passes) -> Entrance:
    """The entrance of a gateway that listens on that socket: on all addresses means on this machine's own, too."""
    host, port = sock.getsockname()[:2]
    return Entrance({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, passes)
