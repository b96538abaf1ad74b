"""How a version stands, in short."""

import pytest

from gateway.summary import written
from gateway.types import Signature, TensorSpec


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ({"x": ("float32", (None,))}, {"y": ("float32", (None,))}, "s(x float32[-1] -> y float32[-1])"),
        (
            {"a": ("int64", ()), "b": ("string", (None, 28, 28))},
            {"y": ("any", None)},
            "s(a int64[], b string[-1, 28, 28] -> y any[...])",
        ),
        ({}, {"y": ("bool", (1,))}, "s(none -> y bool[1])"),
    ],
)
def test_a_signature_on_one_line(
    inputs: dict[str, tuple[str, tuple[int | None, ...] | None]],
    outputs: dict[str, tuple[str, tuple[int | None, ...] | None]],
    text: str,
) -> None:
    """Names, dtypes and shapes of both sides, under the names that clients use."""
    sides = [{name: TensorSpec(f"graph_{name}", *told) for name, told in side.items()} for side in (inputs, outputs)]
    assert text == written(Signature("s", "predict", *sides))
