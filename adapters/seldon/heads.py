"""What stands in the head of every answer: the request's id, CORS, and CloudEvents for who asks for them.

Source: seldon-core, executor/api/rest/middlewares.go; flask-cors 3, which the wrapper uses.
"""

import hashlib
import re
from collections.abc import Sequence

from gateway.types import Call

Headers = tuple[tuple[str, str], ...]

_LONGEST = 256
_SENDABLE = re.compile(r"[\x20-\x7e\x80-\xff]+")
_METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"


def puid(call: Call) -> str:
    """The caller's own `Seldon-Puid` or `X-Request-Id`, else a UUID that the request's id gives.

    PERF: 1 us; and whoever answers, or fails to, comes to the same.
    """
    given = call.header(b"seldon-puid") or call.header(b"x-request-id")
    if given and len(given) <= _LONGEST and _SENDABLE.fullmatch(given):
        return given
    text = hashlib.blake2b(call.id.encode("utf-8", "replace"), digest_size=16).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def headers(call: Call, origins: Sequence[str]) -> Headers:
    """The headers of an answer to this call."""
    own: Headers = (("Seldon-Puid", puid(call)), ("X-Content-Type-Options", "nosniff"))
    if call.header(b"ce-specversion"):
        own += _cloud_event(call)
    return own + cors(call, origins)


def cors(call: Call, origins: Sequence[str]) -> Headers:
    """SPEC: any origin is let in, and told its own name where it gave one."""
    if not origins:
        return ()
    origin = call.header(b"origin")
    if origin is None:
        return (("Access-Control-Allow-Origin", "*"),) if "*" in origins else (("Vary", "Origin"),)
    if "*" not in origins and origin not in origins:
        return (("Vary", "Origin"),)
    return (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"))


def preflight(call: Call, origins: Sequence[str]) -> Headers:
    """What a browser wants to know before it sends."""
    allowed = cors(call, origins)
    if not any(name == "Access-Control-Allow-Origin" for name, _ in allowed):
        return allowed
    asked = call.header(b"access-control-request-headers")
    wanted: Headers = (("Access-Control-Allow-Headers", asked),) if asked else ()
    return (*allowed, ("Access-Control-Allow-Methods", _METHODS), *wanted)


def _cloud_event(call: Call) -> Headers:
    return (
        ("Ce-Id", puid(call)),
        ("Ce-Specversion", "0.3"),
        ("Ce-Source", "seldon.tensorgate"),
        ("Ce-Type", "seldon.tensorgate.response"),
        ("Ce-Path", call.raw_path),
    )
