"""Media types with parameters, and which of the forms on offer a caller accepts.

Source: RFC 9110, sections 8.3.1 and 12.5.1. SPEC: case does not matter, and parameters that nobody knows are ignored,
since the containers of SageMaker differ in both and its documents mix them freely.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from adapters._excerpt import excerpt
from adapters._patterns import compiled
from gateway.errors import MalformedBody, NotAcceptable, UnsupportedMedia

_NAME = re.compile(r"[!#$%&'*+.^_`|~\w-]+/[!#$%&'*+.^_`|~\w-]+", re.ASCII)
_OUTSIDE_QUOTES = {sign: compiled(rf'(?:[^{sign}"]|"(?:[^"\\]|\\.)*+(?:"|$))++', re.DOTALL) for sign in (",", ";")}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUALITY = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_TRUE = ("", "1", "true", "yes")
_CHARSETS = frozenset({"utf-16", "utf-16le", "utf-16be", "utf-32", "iso-8859-1", "latin-1", "latin1", "windows-1252"})
"""Encodings that are not read as UTF-8; every other name is taken for it."""


class MediaType(Struct, frozen=True):
    """A type and its parameters, names in lower case."""

    name: str
    parameters: dict[str, str] = {}

    def flag(self, name: str) -> bool:
        """Whether the parameter is there and does not say no: `verbose`, `verbose=true`, `verbose=True`."""
        value = self.parameters.get(name)
        return value is not None and value.lower() in _TRUE

    def count(self, name: str) -> int:
        """A parameter that counts something; 0 if it is not there. Raises MalformedBody for no count."""
        value = self.parameters.get(name) or "0"
        if not re.fullmatch("[0-9]{1,9}", value):
            raise MalformedBody(f"the parameter {name} is no count: {excerpt(value)}")
        return int(value)


def parse_media_type(header: str) -> MediaType:
    """The value of a Content-Type. Raises UnsupportedMedia for what is none, such as a list."""
    name, parameters = _split(header)
    if not _NAME.fullmatch(name):
        raise UnsupportedMedia(f"{excerpt(header)} is not a media type")
    return MediaType(name, parameters)


def negotiate(accept: str | None, offers: Sequence[str]) -> MediaType:
    """The offer that the value of an Accept header prefers, with the parameters that it came with.

    Offers are bare, in lower case, the default first: it answers an absent or empty header and `*/*`. Among equal
    qualities the first in the header wins. Raises NotAcceptable, whose text lists the offers.
    """
    ranges = [_split(part) for part in _OUTSIDE_QUOTES[","].findall(accept or "") if part.strip()]
    if not ranges:
        return MediaType(offers[0])
    # The narrowest range that covers an offer rules it: `text/csv;q=0, */*` is everything but CSV.
    widths = {offer: min(filter(None, (_width(name, offer) for name, _ in ranges)), default=0) for offer in offers}
    best, choice = 0.0, None
    for name, parameters in ranges:
        quality = _quality(parameters.pop("q", ""))
        ruled = (offer for offer, width in widths.items() if width and _width(name, offer) == width)
        offer = next(ruled, None) if quality > best else None
        if offer:
            best, choice = quality, MediaType(offer, parameters)
    if choice is None:
        raise NotAcceptable(f"{excerpt(accept)} is not among the forms on offer: {', '.join(offers)}")
    return choice


def _width(name: str, offer: str) -> int:
    """How wide a range is that covers the offer: 1 its own name, 2 its type, 3 all; 0 if it does not."""
    if name == offer:
        return 1
    if name in ("*/*", "*"):
        return 3
    return 2 if name.endswith("/*") and offer.startswith(name[:-1]) else 0


def _quality(text: str) -> float:
    return min(float(text), 1.0) if _QUALITY.fullmatch(text) else 1.0


def _split(value: str) -> tuple[str, dict[str, str]]:
    name, *rest = _OUTSIDE_QUOTES[";"].findall(value) or [""]
    parameters: dict[str, str] = {}
    for parameter in rest:
        key, _, text = parameter.partition("=")
        if key.strip():
            parameters.setdefault(key.strip().lower(), _unquoted(text.strip()))
    return name.strip().lower(), parameters


def _unquoted(text: str) -> str:
    return _ESCAPED.sub(r"\1", text[1:].removesuffix('"')) if text.startswith('"') else text


def to_utf8(body: bytes, media_type: MediaType) -> bytes:
    """A text's body in UTF-8, from the encoding that the type's `charset` (or `encoding`) names."""
    charset = media_type.parameters.get("charset") or media_type.parameters.get("encoding") or ""
    if charset.lower() not in _CHARSETS:
        return body
    try:
        return body.decode(charset.lower()).encode()
    except UnicodeError:
        raise MalformedBody(f"the body is not {charset.lower()}") from None
