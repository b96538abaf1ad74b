"""What went wrong on the other side, as an error of the house: no address, no key and no header is ever shown."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from gateway.errors import (
    BodyTooLarge,
    DeadlineExceeded,
    GatewayError,
    InferenceFailed,
    NotReady,
    RateLimited,
    UpstreamRefused,
)

SERVER = "the model's server"
_MESSAGE_CHARS = 2000
_OURS = {401, 402, 403, 404, 405, 407}
"""Statuses that tell of the gateway's own settings: its key, the model's name there, the address."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Miss(Exception):
    """An attempt that gave no answer."""

    def __init__(self, error: GatewayError, *, again: bool, blames: bool, wait: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.again = again
        """Whether it may be repeated: nothing of an answer has come."""
        self.blames = blames
        """Whether it speaks against the server."""
        self.wait = wait
        """Seconds that the server wants to be left alone."""


class Told(Struct, frozen=True):
    """An error as another server describes it."""

    message: str = ""
    param: str | None = None
    code: str | None = None
    status: int = 0


def broken_off() -> InferenceFailed:
    """What is told where an answer has no end."""
    return InferenceFailed(f"{SERVER} broke off while it answered")


def bad_answer(reason: str = "") -> InferenceFailed:
    """What is told where an answer cannot be read."""
    return InferenceFailed(f"{SERVER} gave an answer that cannot be read" + (f": {reason}" if reason else ""))


def too_large(most: int) -> InferenceFailed:
    """What is told where an answer does not end in time to be held."""
    return InferenceFailed(f"the answer of {SERVER} is larger than the limit of {most} bytes")


def too_slow(what: str) -> DeadlineExceeded:
    """What is told where a timeout was reached."""
    return DeadlineExceeded(f"{SERVER} {what} in time")


def miss_of(error: httpx.HTTPError) -> Miss:
    """Before the head of an answer has come."""
    if isinstance(error, httpx.PoolTimeout):
        return Miss(NotReady(f"all connections to {SERVER} are in use", 1.0), again=False, blames=False)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Miss(NotReady(f"{SERVER} does not take connections just now", 1.0), again=True, blames=True)
    if isinstance(error, httpx.TimeoutException):
        return Miss(too_slow("did not take the request"), again=False, blames=True)
    text = f"{SERVER} closed the connection before it answered"
    return Miss(InferenceFailed(text), again=True, blames=True)


def refusal_of(status: int, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> GatewayError:
    """What a status of 300 and more means to the caller."""
    told = told_by(body, secrets)
    wait = retry_after(headers)
    if status == 429:
        return RateLimited(told.message or f"{SERVER} is asked too often", wait or 1.0)
    if status == 503:
        return NotReady(f"{SERVER} is not ready just now", wait or 1.0)
    if status in (408, 504):
        return too_slow("did not answer")
    if status == 413:
        return BodyTooLarge(told.message or f"the request is larger than {SERVER} takes")
    if status in _OURS or status < 400:
        return InferenceFailed(f"{SERVER} does not serve the gateway: it answered with status {status}")
    if status < 500:
        return UpstreamRefused(told.message or f"{SERVER} refused the request", status, told.param, told.code)
    return InferenceFailed(f"{SERVER} failed with status {status}")


def told_by(body: bytes, secrets: Sequence[str]) -> Told:
    """What the body says, in OpenAI's form, an older one of it, TF Serving's, v2's or FastAPI's."""
    try:
        return told_in(msgspec.json.decode(body), secrets)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Told()


def told_in(document: Any, secrets: Sequence[str]) -> Told:
    """As `told_by`, of the document."""
    inner = document.get("error", document) if isinstance(document, dict) else {}
    if isinstance(inner, str):
        return Told(_shown(inner, secrets))
    if not isinstance(inner, dict):
        return Told()
    message = next((inner[key] for key in ("message", "detail", "error") if isinstance(inner.get(key), str)), "")
    code, param = inner.get("code"), inner.get("param")
    status = next((one for one in (code, inner.get("status")) if type(one) is int and 400 <= one <= 599), 0)
    return Told(
        _shown(message, secrets),
        _shown(param, secrets)[:128] if isinstance(param, str) else None,
        _shown(code, secrets)[:128] if isinstance(code, str) else None,
        status,
    )


def failure_in_stream(document: Any, secrets: Sequence[str]) -> GatewayError:
    """An error that came after the answer had begun."""
    told = told_in(document, secrets)
    if 400 <= told.status < 500 and told.status not in _OURS:
        return UpstreamRefused(told.message or f"{SERVER} refused the request", told.status, told.param, told.code)
    return InferenceFailed(f"{SERVER} failed while it answered")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, told as such or as a date. Source: RFC 9110, 10.2.3."""
    told = headers.get("retry-after", "").strip()
    if not told:
        return None
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(told).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _shown(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "...")
    return _CONTROL.sub(" ", text)[:_MESSAGE_CHARS].encode("utf-8", "replace").decode()
