"""Models whose outputs are as large as a client says are known, bounded, and never run on the event loop."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import floats, identity, model, node, value, weight
from scene import put
from served import Load

from backends._arena import free_bytes
from backends._pace import NEVER
from backends._sizes import sized_by_values
from gateway.errors import OutOfMemory


def filled() -> onnx.ModelProto:
    """Zeros of the shape that the input says."""
    return model(
        [node("ConstantOfShape", ["s"], ["y"])], [value("s", "int64", [None])], [value("y", "float32", [None, None])]
    )


def counted() -> onnx.ModelProto:
    """The numbers up to a sum of the input."""
    nodes = [node("ReduceSum", ["x"], ["n"], keepdims=0), node("Range", ["zero", "n", "one"], ["y"])]
    weights = [weight("zero", np.int64(0)), weight("one", np.int64(1))]
    return model(nodes, [value("x", "int64")], [value("y", "int64")], weights)


def repeated(constant: bool) -> onnx.ModelProto:
    """The input, repeated as often as a weight or another input says."""
    inputs = [value("x", "float32"), *(() if constant else (value("n", "int64", [1]),))]
    weights = [weight("n", np.array([3]))] if constant else []
    return model([node("Tile", ["x", "n"], ["y"])], inputs, [value("y", "float32")], weights)


def like() -> onnx.ModelProto:
    """Zeros of the input's own shape."""
    nodes = [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["y"])]
    return model(nodes, [value("x", "float32")], [value("y", "float32")])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (filled(), True),
        (counted(), True),
        (repeated(constant=False), True),
        (repeated(constant=True), False),
        (like(), False),
        (identity(), False),
    ],
    ids=["filled", "counted", "repeated", "constant", "like", "identity"],
)
def test_what_values_decide_is_told_from_what_shapes_decide(made: onnx.ModelProto, expected: bool) -> None:
    """Only where a client's numbers reach what sizes a tensor."""
    assert sized_by_values(made.graph) is expected


def test_what_does_not_fit_fails_alone(load: Load) -> None:
    """A few bytes that ask for a hundred terabytes, or for more than half of what there is: out of memory, as told."""
    served = load(filled())
    assert served.backend._pace.inline_elements == NEVER  # type: ignore[attr-defined]
    for rows in (10**7, free_bytes() * 6 // 10 // 4000):
        with pytest.raises(OutOfMemory):
            served.infer({"s": np.array([rows, 1000 if rows < 10**7 else 10**7], np.int64)})
        assert served.infer({"s": np.array([2, 3])})["y"].shape == (2, 3)


def test_other_models_run_where_they_did(load: Load) -> None:
    """Short runs stay on the event loop."""
    served = load(identity())
    assert served.backend._pace.inline_elements != NEVER  # type: ignore[attr-defined]
    assert served.infer({"x": floats(3)})["y"].shape == (3,)


def test_what_is_free_is_what_the_container_may_have(tmp_path: Path) -> None:
    """The machine's, if that is less; nothing where nobody tells."""
    assert free_bytes(tmp_path) == 0
    put(tmp_path / "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  1000 kB\n")
    assert free_bytes(tmp_path) == 1_024_000
    put(tmp_path / "sys/fs/cgroup/memory.max", "max\n")
    assert free_bytes(tmp_path) == 1_024_000
    put(tmp_path / "sys/fs/cgroup/memory.max", "4096\n")
    assert free_bytes(tmp_path) == 4096
