"""Forms of parts, as browsers and curl send them."""

import pytest

from adapters._multipart import MOST_PARTS, Part, read_parts
from gateway.errors import BodyTooLarge, MalformedBody

TYPE = "multipart/form-data; boundary=QQ"


def form(*parts: str, end: str = "--QQ--\r\n") -> bytes:
    """A form of those parts, each with its head."""
    return ("".join(f"--QQ\r\n{part}\r\n" for part in parts) + end).encode("latin-1")


def part(name: str, data: str, more: str = "") -> str:
    """One part."""
    return f'Content-Disposition: form-data; name="{name}"{more}\r\n\r\n{data}'


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (form(part("a", "1"), part("b", "")), [Part("a", b"1"), Part("b", b"")]),
        (form(part("f", "\x00\xff\r\n--Q", '; filename="x.bin"')), [Part("f", b"\x00\xff\r\n--Q", "x.bin")]),
        (form(part("f", "x", '; filename=""')), [Part("f", b"x", "")]),
        (form("content-type: text/plain\r\nCONTENT-DISPOSITION: form-data; name=a\r\n\r\n1"), [Part("a", b"1")]),
        (form(part("a", "1"), part("a", "2")), [Part("a", b"1"), Part("a", b"2")]),
    ],
)
def test_parts_are_read(body: bytes, parts: list[Part]) -> None:
    """Names, bytes and file names come as they were sent, in their order."""
    assert read_parts(body, TYPE) == parts


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (form(part("a", "1")), "multipart/form-data", "no boundary"),
        (form(part("a", "1"), end=""), TYPE, "without its last boundary"),
        (b"", TYPE, "without its last boundary"),
        (b"no form", TYPE, "no multipart form"),
        (form("Content-Disposition: form-data\r\n\r\n1"), TYPE, "no name"),
        (form("X: y\r\n\r\n1"), TYPE, "no name"),
        (form("a: b\r\n" * 100 + "\r\n1"), TYPE, "no multipart form"),
        (form(part("a", "1")), "multipart/form-data; boundary=" + "Q" * 300, "no multipart form"),
    ],
)
def test_fault_is_told(body: bytes, content_type: str, text: str) -> None:
    """What is no form is the client's mistake, with its reason."""
    with pytest.raises(MalformedBody, match=text):
        read_parts(body, content_type)


def test_parts_are_bounded() -> None:
    """A form of very many small parts costs no more than its bound."""
    with pytest.raises(BodyTooLarge, match=str(MOST_PARTS)):
        read_parts(form(*[part("a", "")] * (MOST_PARTS + 1)), TYPE)
