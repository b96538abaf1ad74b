"""A client's own words inside an error message: short, quoted, one line of ASCII."""

from numbers import Number

_MOST = 32
"""Characters kept: error texts travel in headers and in log lines."""


def excerpt(value: object) -> str:
    """The start of a text, or a number, as a literal that is safe to show."""
    if isinstance(value, Number):
        return f"{value}"
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value[: 4 * _MOST]).decode("utf-8", "replace")
    text = str(value)
    return ascii(text[:_MOST]) + ("..." if len(text) > _MOST else "")
