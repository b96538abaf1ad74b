"""How large answers may be, before and after the run."""

import numpy as np
import pytest

from gateway.errors import BodyTooLarge
from gateway.outputs import check_answer, check_outputs, rows_of
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata, Signature, TensorSpec


def metadata(*shapes: tuple[int | None, ...] | None) -> ModelMetadata:
    """A model whose outputs have those shapes."""
    outputs = {f"y{number}": TensorSpec(f"y{number}", "float32", shape) for number, shape in enumerate(shapes)}
    signature = Signature("serving_default", "predict", {"x": TensorSpec("x", "float32", (None,))}, outputs)
    return ModelMetadata("m", 1, "test", {"serving_default": signature})


def rows(count: int, *outputs: str) -> InferenceRequest:
    """A request of so many rows."""
    return InferenceRequest({"x": np.zeros(count, np.float32)}, outputs=outputs)


@pytest.mark.parametrize(
    ("shapes", "count", "wanted"),
    [
        ([(None, 1000)], 5000, ()),
        ([(None, 500), (None, 500)], 5000, ()),
        ([(None,), (None, 1000)], 5000, ("y1",)),
    ],
)
def test_what_rows_would_make_is_told_before_the_run(
    shapes: list[tuple[int | None, ...]], count: int, wanted: tuple[str, ...]
) -> None:
    """5,000 rows of 1,000 numbers are 20 MB."""
    with pytest.raises(BodyTooLarge, match="20000000 bytes"):
        check_outputs(rows(count, *wanted), metadata(*shapes), 19_999_999)
    check_outputs(rows(count, *wanted), metadata(*shapes), 20_000_000)


@pytest.mark.parametrize("shape", [None, (), (10_000_000,), (None, None)])
def test_what_cannot_be_told_is_not_refused(shape: tuple[int | None, ...] | None) -> None:
    """Outputs without rows, and dimensions that the model alone knows."""
    check_outputs(rows(5000), metadata(shape), 40_000)


def test_an_answer_that_is_too_large_is_not_written_out() -> None:
    """Whatever the model has made."""
    answer = InferenceResponse({"y": np.zeros((10, 100), np.float32), "z": np.zeros(5, np.float64)})
    assert check_answer(answer, 4040) >= 4040
    with pytest.raises(BodyTooLarge, match="4040 bytes"):
        check_answer(answer, 4039)


@pytest.mark.parametrize("tensor", [np.zeros((100_000, 0), np.float32), np.full(20_000, "a", object)])
def test_rows_of_nothing_and_texts_are_work(tensor: np.ndarray) -> None:
    """A hundred thousand empty rows take no bytes, and a megabyte's time to write."""
    assert check_answer(InferenceResponse({"y": tensor}), 1 << 20) > 1 << 20


def test_rows_are_those_of_the_longest_input() -> None:
    """At least one."""
    assert rows_of(InferenceRequest({"a": np.zeros((3, 2)), "b": np.zeros(())})) == 3
    assert rows_of(InferenceRequest({})) == 1
