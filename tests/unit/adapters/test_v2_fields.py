"""Messages are looked at before they are parsed: which of them are read in no time."""

import pytest

from adapters._inference_pb2 import ModelInferRequest
from adapters.v2.fields import is_raw, model_of

MIB = 1 << 20


def message(*raw: bytes, datatype: str = "FP32", typed: int = 0, **more: object) -> bytes:
    """A request with those raw contents, or so many typed ones."""
    built = ModelInferRequest(model_name="m", raw_input_contents=raw, **more)
    item = built.inputs.add(name="x", datatype=datatype, shape=[1])
    item.contents.fp32_contents.extend([1.5] * typed)
    return built.SerializeToString()


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        (message(bytes(MIB)), True),
        (message(bytes(MIB), bytes(MIB), id="a", model_version="1"), True),
        (message(datatype="BYTES", typed=0), False),
        (message(bytes(MIB), datatype="BYTES"), False),
        (message(typed=100_000), False),
        (message(*[b""] * 100), False),
        (message(b"1234", id="x" * 5_000), False),
    ],
)
def test_few_fields_and_raw_numbers_are_read_at_once(body: bytes, raw: bool) -> None:
    """Whatever its length; texts, typed contents and many fields take long."""
    assert is_raw(body) is raw


def test_the_model_is_found_among_the_first_fields() -> None:
    """A flood of fields before it is not searched."""
    assert model_of(message(bytes(100))) == ("m", "")
    assert model_of(message(*[b""] * 5_000, model_version="3")) == ("m", "3")
    assert model_of(b"\x3a\x00" * 5_000 + message(b"")) == ("", "")
