"""Where a call carries its message: parts of a form, the field or the query `json`, or the body itself.

Source: seldon-core, python/seldon_core/flask_utils.py (get_request, get_multi_form_data_request).
"""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

from adapters._excerpt import excerpt
from adapters._multipart import Part, read_parts
from adapters.seldon.documents import parse
from gateway.errors import MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Call

_NO_JSON = "Can't find JSON in data"
_JSON_STARTS = (b"{", b"[", b"\xef\xbb\xbf")
_PAYLOADS = ("data", "jsonData", "strData", "binData")
_FORM = "application/x-www-form-urlencoded"
_JSON_FIELD = re.compile(rb"(?:^|&)json=([^&]*)")
_WINDOW = 1 << 16
_BINARY = ("application/octet-stream", "image/")


def text_of(call: Call) -> bytes | None:
    """The message as JSON text, where it comes as such; None for a form of parts, or bytes of another kind.

    Raises MalformedBody.
    """
    kind = _media(call)
    if kind == "multipart/form-data":
        return None
    start = call.body.lstrip()[:3]
    looks_like_json = start.startswith(_JSON_STARTS)
    if kind == _FORM and not looks_like_json and (text := _field(call.body)) is not None:
        return text
    if call.query and (text := _field(call.query.encode("latin-1", "replace"))) is not None:
        return text
    if start and (looks_like_json or kind == "application/json" or kind.endswith("+json") or not kind):
        return call.body
    if start and kind.startswith(_BINARY):
        return None
    said = f"; its Content-Type is {excerpt(kind)}" if start and kind else "; the body is empty" if not start else ""
    raise MalformedBody(f"{_NO_JSON}{said}")


def message_of(call: Call, limits: DecodeLimits) -> Any:
    """The whole message as Python values. Raises MalformedBody and BodyTooLarge."""
    text = text_of(call)
    if text is None:
        if _media(call) != "multipart/form-data":
            return {"binData": call.body}
        return _from_parts(read_parts(call.body, call.header(b"content-type") or ""), limits)
    message = parse(text, limits, _NO_JSON)
    if message is None:
        raise MalformedBody(f"{_NO_JSON}: it is null")
    return message


def _media(call: Call) -> str:
    return (call.header(b"content-type") or "").partition(";")[0].strip().lower()


def _field(text: bytes) -> bytes | None:
    """The value of the field `json`; the first, if there are several."""
    found = _JSON_FIELD.search(text)
    return _unquoted(found[1].replace(b"+", b" ")) if found else None


def _unquoted(text: bytes) -> bytes:
    """The text without its escapes. PERF: in windows, for each escape is an object of its own for a while."""
    parts, at = [], 0
    while at < len(text):
        end = at + _WINDOW
        escape = text.rfind(b"%", end - 2, end)
        end = end if escape < 0 or end >= len(text) else escape
        parts.append(unquote_to_bytes(text[at:end]))
        at = end
    return b"".join(parts)


def _from_parts(parts: list[Part], limits: DecodeLimits) -> dict[str, Any]:
    """SPEC: a part is a member of the message: strData is text, binData a file's bytes, everything else JSON.

    A file under any other name is bytes too, if no part carries a payload.
    """
    message: dict[str, Any] = {}
    files = []
    for part in parts:
        if part.name == "strData":
            message[part.name] = _text(part)
        elif part.name == "binData":
            message[part.name] = _text(part) if part.filename is None else part.data
        elif part.filename is None or part.name in ("data", "jsonData", "meta"):
            message[part.name] = parse(part.data, limits, f"the part {excerpt(part.name)} is no JSON")
        else:
            files.append(part.data)
    if files and not any(name in message for name in _PAYLOADS):
        if len(files) > 1:
            raise MalformedBody(f"the form has {len(files)} files, and none of them is called binData")
        message["binData"] = files[0]
    return message


def _text(part: Part) -> str:
    try:
        return part.data.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the part {part.name} is not UTF-8 at byte {error.start}") from None
