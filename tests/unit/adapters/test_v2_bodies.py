"""Bodies of v2: what is looked at unparsed, and what is read without a thread."""

import json

import numpy as np
import pytest
from v2_calls import decoded, model, operation

from adapters.v2 import fields
from gateway.errors import (
    BodyTooLarge,
    MalformedBody,
)
from gateway.types import (
    Call,
    InferenceRequest,
    ModelMetadata,
    Target,
)

# Messages that are not parsed...


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"\x08\x01", [(1, 2, 2)]),
        (b"\x0a\x01a", [(1, 2, 3)]),
        (b"\x0d1234", [(1, 5, 5)]),
        (b"\x0912345678", [(1, 9, 9)]),
        (b"\x0a\x00\x12\x00", [(1, 2, 2), (2, 4, 4)]),
    ],
)
def test_fields(body: bytes, found: list[tuple[int, int, int]]) -> None:
    """Every kind of field is passed over."""
    assert list(fields.fields(body, 0, len(body))) == found


@pytest.mark.parametrize("body", [b"\x0b", b"\x0d123", b"\x80", b"\x0a\x05a", b"\x08" + b"\xff" * 11])
def test_broken_fields(body: bytes) -> None:
    """What is no message is a malformed body."""
    with pytest.raises(MalformedBody):
        list(fields.fields(body, 0, len(body)))


def test_last_name_counts() -> None:
    """Of two names the last counts, as a parser has it; the first thousands of fields are looked at, no more."""
    assert fields.model_of(b"\x0a\x01a\x0a\x01b\x12\x012") == ("b", "2")
    assert fields.model_of(b"\x0a\x01a" + b"\x18\x00" * 20_000 + b"\x0a\x01b") == ("a", "")


# What takes no thread...


def quickly(body: bytes, to: ModelMetadata, json_bytes: int | None = None) -> InferenceRequest | None:
    """What a body is read as at once."""
    found = operation("infer")
    assert found.decode_quickly is not None
    headers = [] if json_bytes is None else [(b"inference-header-content-length", str(json_bytes).encode())]
    return found.decode_quickly(Call("POST", "/v2/models/m/infer", headers=headers, body=body), Target("m"), to)


def test_numbers_are_read_at_once() -> None:
    """Plain numbers, and binary tensors of them, need no thread."""
    text = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, 2]}]}'
    head = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}]}'
    tail = np.array([1.5, 2], "<f4").tobytes()
    for request in (
        quickly(text, model(x="float32")),
        quickly(text, model(x="float32"), len(text)),
        quickly(head + tail, model(x="float32"), len(head)),
    ):
        assert request is not None
        assert request.inputs["x"].tolist() == [1.5, 2]


@pytest.mark.parametrize("json_bytes", [None, 90])
def test_texts_are_not_read_at_once(json_bytes: int | None) -> None:
    """Whatever could take long is left to the exact way, and to a thread."""
    text = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a"]}], "z": "BYTES"}'
    assert quickly(text, model(x="string"), json_bytes) is None
    assert quickly(b"", model(x="float32")) is None


def test_texts_are_bounded() -> None:
    """524,288 texts are taken, one more is not, before any is built."""
    body = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [524289], "data": []}]}'
    with pytest.raises(BodyTooLarge, match="more than 524288 texts"):
        decoded("infer", json.loads(body), model(x="string"))
