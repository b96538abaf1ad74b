"""multipart/form-data to its parts.

Source: RFC 7578. A browser's forms and curl's -F are both this.
"""

from msgspec import Struct
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gateway.errors import BodyTooLarge, MalformedBody

MOST_PARTS = 256
"""A form with more is refused: every part costs some microseconds, however small it is."""


class Part(Struct, frozen=True):
    """One field of a form."""

    name: str
    data: bytes
    filename: str | None = None
    """None for a plain field; a file may have an empty name."""


def read_parts(body: bytes, content_type: str) -> list[Part]:
    """The parts in their order. Raises MalformedBody, and BodyTooLarge for too many."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise MalformedBody("the multipart form has no boundary in its Content-Type")
    reader = _Reader(body)
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise MalformedBody(f"the body is no multipart form: {_plain(error)}") from None
    if not reader.ended:
        raise MalformedBody("the multipart form ends without its last boundary")
    return reader.parts


class _Reader:
    """Collects what the parser comes across."""

    def __init__(self, body: bytes) -> None:
        self.parts: list[Part] = []
        self.ended = False
        self._pieces: list[bytes] = []
        self._field = b""
        self._value = b""
        self._disposition = b""

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        if len(self.parts) >= MOST_PARTS:
            raise BodyTooLarge(f"the form has more than {MOST_PARTS} parts")
        self._pieces, self._disposition = [], b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append(data[start:end])

    def _end(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name")
        if name is None:
            raise MalformedBody(f"part {len(self.parts) + 1} of the form has no name")
        filename = options.get(b"filename")
        self.parts.append(
            Part(
                name.decode("utf-8", "replace"),
                b"".join(self._pieces),
                None if filename is None else filename.decode("utf-8", "replace"),
            )
        )

    def _finish(self) -> None:
        self.ended = True


def _plain(error: Exception) -> str:
    """The parser's own words, which quote at most a byte of the body."""
    return str(error).encode("ascii", "backslashreplace").decode()[:200]
