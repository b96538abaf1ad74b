"""A request's head that comes again, byte for byte, as most clients send it: it is parsed once a connection.

PERF: 6 us of 57 a request of one row. A client whose heads differ from one request to the next costs 1 us a few times.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gateway.types import Call

MOST_BYTES = 4096
"""Longer heads are not remembered."""
MOST_MISSES = 8
"""How many different ones in a row, until a connection's are remembered no more."""

_END = b"\r\n\r\n"
_MORE = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
"""Headers that ask for more than an answer."""


class KnownHead(Struct, frozen=True):
    """A head, what the parser made of it, and the length of the body that follows."""

    raw: bytes
    call: Call
    length: int


def known(data: bytes, call: Call, headers: Sequence[tuple[bytes, bytes]]) -> KnownHead | None:
    """The head that the data begins with, found to be that call; None if it says more than how long its body is."""
    end = data.find(_END, 0, MOST_BYTES)
    if end < 0 or data.count(b"\r\n", 0, end) != len(headers) or not _MORE.isdisjoint(call.fields or ()):
        return None
    lengths = [value for name, value in headers if name == b"content-length"]
    if len(lengths) > 1 or not all(map(bytes.isdigit, lengths)):
        return None
    return KnownHead(data[: end + len(_END)], replace(call, learned={}), int(lengths[0]) if lengths else 0)
