"""A protobuf message looked at without parsing it: what a parser would build from many small fields is bounded first.

Source: the Protocol Buffers encoding guide.
"""

from collections.abc import Iterator

from gateway.errors import BodyTooLarge, MalformedBody

_MOST = 16_384
"""Fields of a message and of its inputs: what an honest request has a few of."""
_LOOKED_AT = 1024
"""Fields among which the model's name is looked for: it is the first that clients write."""
_FEW, _SHORT = 64, 4096
_HARMLESS = 64 << 10
"""A shorter message is parsed as it is."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODEL_NAME, _MODEL_VERSION, _INPUTS, _RAW_CONTENTS = 1, 2, 5, 7


def fields(body: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field that has bytes; of others the two are equal. Raises MalformedBody."""
    at = start
    while at < end:
        tag, at = _varint(body, at, end)
        kind, number = tag & 7, tag >> 3
        first = at
        if kind == _VARINT:
            _, first = _varint(body, at, end)
            at = first
        elif kind == _BYTES:
            size, first = _varint(body, at, end)
            at = first + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
            first = at
        else:
            raise MalformedBody("the body is no ModelInferRequest")
        if at > end:
            raise MalformedBody("the body is no ModelInferRequest: a field is cut off")
        yield number, first, at


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedBody("the body is no ModelInferRequest: a number is cut off")


def check_fields(body: bytes) -> None:
    """Raise BodyTooLarge for a request of more small fields than any request needs."""
    # PERF: a field of two bytes becomes an object of a hundred.
    if len(body) <= _HARMLESS:
        return
    for count, _ in enumerate(_within(body)):
        if count > _MOST:
            raise BodyTooLarge(f"the message has more than {_MOST} fields")


def is_raw(body: bytes) -> bool:
    """Whether the message holds few fields, and its inputs nothing but what they are: their contents are raw numbers.

    Such a message is decoded in no time, however long it is.
    """
    described = 0
    for count, (number, start, end) in enumerate(fields(body, 0, len(body))):
        if number == _INPUTS:
            described += end - start
            if b"BYTES" in body[start : min(end, start + _SHORT)]:
                return False
        elif number != _RAW_CONTENTS and end - start > _SHORT:
            return False
        if count > _FEW or described > _SHORT:
            return False
    return True


def _within(body: bytes) -> Iterator[int]:
    """The numbers of all fields of the message and of its inputs."""
    for number, start, end in fields(body, 0, len(body)):
        yield number
        if number == _INPUTS:
            yield from (inner for inner, _, _ in fields(body, start, end))


def model_of(body: bytes) -> tuple[str, str]:
    """The names of model and version in a request, as far as the first fields say. Raises MalformedBody."""
    found = {_MODEL_NAME: b"", _MODEL_VERSION: b""}
    for count, (number, start, end) in enumerate(fields(body, 0, len(body))):
        if number in found:
            found[number] = body[start:end]
        if count > _LOOKED_AT:
            break
    try:
        return found[_MODEL_NAME].decode(), found[_MODEL_VERSION].decode()
    except UnicodeDecodeError:
        raise MalformedBody("the model's name is not UTF-8") from None
