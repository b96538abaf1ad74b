"""How the callers of one path say what they send and what they want: the same facts, in other headers."""

from typing import Literal

from msgspec import Struct

from gateway.types import Call

PREFIX = b"x-amzn-sagemaker-"


class Entry(Struct, frozen=True):
    """The dialect of one path."""

    content_type: tuple[bytes, ...]
    """Headers, the first that is there and not empty counts."""
    accept: bytes
    streams: Literal["never", "asked", "always"] = "never"
    """Whether the answer comes in parts; "asked": if the body says `"stream": true`."""

    def sent_type(self, call: Call) -> str:
        """The Content-Type of the body; empty if the caller names none."""
        return next((value for name in self.content_type if (value := (call.header(name) or "").strip())), "")

    def wanted_types(self, call: Call) -> str | None:
        """The Accept header."""
        return call.header(self.accept)


# SPEC: sagemaker-containers also reads a header that is literally named ContentType.
_PLAIN = (b"content-type", b"contenttype")

CONTAINER = Entry(_PLAIN, b"accept", "asked")
INVOKE = Entry(_PLAIN, b"accept")
STREAM = Entry(_PLAIN, PREFIX + b"accept", "always")
ASYNC = Entry((PREFIX + b"content-type", *_PLAIN), PREFIX + b"accept")
