"""How many values a body may hold that is read value by value."""

import pytest

from adapters.tfserving.examples import read_examples
from adapters.tfserving.predict import decode
from gateway.errors import BodyTooLarge, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import ModelMetadata, Signature, TensorSpec

LIMITS = DecodeLimits(elements=400)
EXACT = 100
"""Values that a body may hold that is no plain list of numbers."""


def values_of(body: str, dtype: str) -> int:
    """How many values reach the model."""
    signature = Signature("serving_default", "predict", {"x": TensorSpec("x", dtype, (None,))}, {})
    metadata = ModelMetadata("m", 1, "none", {"serving_default": signature})
    return decode(body.encode(), metadata, LIMITS).inputs["x"].size


def listed(first: str, other: str, count: int) -> str:
    """That many instances."""
    return f'{{"instances": [{", ".join([first] + [other] * (count - 1))}]}}'


@pytest.mark.parametrize(
    ("first", "other", "dtype"),
    [("NaN", "1.25", "float32"), ("-Infinity", "1", "float64"), ('"a"', '"bc"', "string")],
)
def test_what_is_read_exactly_may_hold_a_quarter(first: str, other: str, dtype: str) -> None:
    """Tokens and strings are values that cost more; the refusal tells how many there may be, and of what."""
    assert values_of(listed(first, other, EXACT), dtype) == EXACT
    with pytest.raises(BodyTooLarge, match=r"exact reader \(NaN, strings, .*\) may hold 100 values"):
        values_of(listed(first, other, EXACT + 2), dtype)


def test_plain_numbers_may_fill_the_limit() -> None:
    """They never get to the exact reader."""
    assert values_of(listed("1", "2.5", 400), "float32") == 400


@pytest.mark.parametrize("fault", ["}", "]]", ", [1]]}"])
def test_a_mistake_in_a_large_body_is_not_looked_for(fault: str) -> None:
    """It would take the exact reader to find it; in a small one it is told."""
    numbers = '{"instances": [' + ", ".join(["1.5"] * EXACT)
    with pytest.raises(BodyTooLarge):
        values_of(f"{numbers}, 1, 2{fault}", "float32")


def test_a_mistake_in_a_small_body_is_told() -> None:
    """With its place."""
    with pytest.raises(MalformedBody, match="JSON Parse error"):
        values_of('{"instances": [1.5, 2}', "float32")


def test_examples_are_read_exactly() -> None:
    """Whatever they hold."""
    numbers = ", ".join(["1.5"] * EXACT)
    assert len(read_examples(f'{{"examples": [{{"x": [{numbers}]}}]}}'.encode(), LIMITS)[1][0]["x"]) == EXACT
    with pytest.raises(BodyTooLarge, match="examples"):
        read_examples(f'{{"examples": [{{"x": [{numbers}, 1, 2]}}]}}'.encode(), LIMITS)
