"""A run that nobody waits for any more ends, and frees the model's thread."""

import asyncio

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import model, node, value, weight
from served import Load

from backends._pace import NEVER
from gateway.types import InferenceRequest


def turns() -> onnx.ModelProto:
    """As many products of two matrices as the input says, one after the other."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["go_on"]), node("MatMul", ["state", "w"], ["next"])],
        "turn",
        [value("number", "int64", []), value("go", "bool", []), value("state", "float32", [64, 64])],
        [value("go_on", "bool", []), value("next", "float32", [64, 64])],
    )
    identity = np.eye(64, dtype=np.float32)
    loop = node("Loop", ["n", "yes", "w"], ["y"], body=body)
    return model(
        [loop], [value("n", "int64", [])], [value("y", "float32", [64, 64])],
        [weight("w", identity), weight("yes", np.array(True))],
    )  # fmt: skip


def request(count: int) -> InferenceRequest:
    """So many turns."""
    return InferenceRequest({"n": np.array(count, np.int64)})


def test_a_run_that_is_cancelled_frees_the_thread(load: Load) -> None:
    """The next request does not wait for its end, which would come in hours."""
    served = load(turns())
    served.backend._pace.inline_elements = NEVER  # type: ignore[attr-defined]

    async def leave() -> np.ndarray:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await served.backend.infer(request(1 << 50))
        async with asyncio.timeout(10):
            return (await served.backend.infer(request(3))).outputs["y"]

    assert served.runner.run(leave()).trace() == 64
