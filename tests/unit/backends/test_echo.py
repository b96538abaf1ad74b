"""The echo: what it takes, what it gives back, and how it streams."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from backends import echo
from gateway.errors import InvalidTensor, LoadFailed, SignatureNotFound
from gateway.interfaces import Backend, BackendStatus, ModelSource, SignatureConfig
from gateway.types import InferenceRequest, InferenceResponse, TensorSpec


def load(config: dict[str, Any] | None = None, **source: Any) -> Backend:
    """An echo with that `[echo]` table."""
    described = ModelSource("echo", 1, Path(), Path(), **source)
    return asyncio.run(echo.load(described, msgspec.convert(config or {}, echo.Config)))


def infer(backend: Backend, inputs: dict[str, np.ndarray], **request: Any) -> dict[str, np.ndarray]:
    """The outputs for those inputs."""
    return asyncio.run(backend.infer(InferenceRequest(inputs, **request))).outputs


def stream(backend: Backend, inputs: dict[str, np.ndarray], most: int = 100) -> list[InferenceResponse]:
    """The parts for those inputs; the stream is closed after `most`."""

    async def parts() -> list[InferenceResponse]:
        taken = []
        stream = backend.stream(InferenceRequest(inputs))
        async for part in stream:
            taken.append(part)
            if len(taken) == most:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        return taken

    return asyncio.run(parts())


TWO = {"inputs": {"a": {"dtype": "int8", "shape": [-1, 2]}, "t": {"dtype": "string", "shape": [-1]}}, "suffix": "_out"}


def test_the_default() -> None:
    """Without configuration it repeats x, float32 of any shape."""
    backend = load()
    signature = backend.metadata.signatures["serving_default"]
    assert signature.inputs == signature.outputs == {"x": TensorSpec("x", "float32", None)}
    assert infer(backend, {"x": np.array(2.5, np.float32)})["x"].tolist() == 2.5
    assert backend.status == BackendStatus("echo")


def test_configured_inputs() -> None:
    """Outputs are named after inputs; -1 is a free dimension; bytes stay bytes."""
    backend = load(TWO)
    signature = backend.metadata.signatures["serving_default"]
    assert signature.inputs == {"a": TensorSpec("a", "int8", (None, 2)), "t": TensorSpec("t", "string", (None,))}
    assert list(signature.outputs) == ["a_out", "t_out"]
    inputs = {"t": np.array([b"\xff", "x"], object), "a": np.zeros((2, 2), np.int8)}
    answer = infer(backend, inputs)
    assert (list(answer), answer["t_out"].tolist()) == (["a_out", "t_out"], [b"\xff", "x"])
    assert list(infer(backend, inputs, outputs=("t_out",))) == ["t_out"]


def test_signatures() -> None:
    """The tables of model.toml rename and choose."""
    signatures = {"s": SignatureConfig("regress", {"in": "a"}, {"out": "a_out"})}
    backend = load(TWO, signatures=signatures)
    assert backend.metadata.signatures["s"].method == "regress"
    assert infer(backend, {"in": np.ones((1, 2), np.int8)}, signature="s")["out"].tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("config", "signatures", "said"),
    [
        ({"inputs": {"x": {"dtype": "float31"}}}, {}, "echo.inputs.x: unknown dtype 'float31'"),
        (TWO, {"s": SignatureConfig(inputs={"a": "q"})}, "signatures.s.inputs: the model has no input 'q'"),
        (TWO, {"s": SignatureConfig(inputs={"a": "a"})}, "signatures.s: output 't_out' repeats input 't'"),
    ],
)
def test_refused_configurations(config: dict[str, Any], signatures: dict[str, SignatureConfig], said: str) -> None:
    """A table that makes no sense fails the load, and says where."""
    with pytest.raises(LoadFailed) as caught:
        load(config, signatures=signatures)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("inputs", "request_fields", "error"),
    [
        ({"a": np.zeros((1, 2), np.int8)}, {}, InvalidTensor),
        ({"a": np.zeros((1, 3), np.int8), "t": np.array(["x"], object)}, {}, InvalidTensor),
        ({"a": np.zeros((1, 2), np.int8), "t": np.array(["x"], object)}, {"outputs": ("a",)}, InvalidTensor),
        ({}, {"signature": "other"}, SignatureNotFound),
    ],
)
def test_refused_requests(inputs: dict[str, Any], request_fields: dict[str, Any], error: type[Exception]) -> None:
    """An echo is as strict as a model."""
    with pytest.raises(error):
        infer(load(TWO), inputs, **request_fields)


def test_a_stream_of_rows() -> None:
    """Each part is one row and keeps its leading dimension; scalars come with every part."""
    backend = load({"inputs": {"x": {}, "s": {"shape": []}}})
    parts = stream(backend, {"x": np.array([[1, 2], [3, 4]], np.float32), "s": np.array(5, np.float32)})
    assert [part.outputs["x"].tolist() for part in parts] == [[[1, 2]], [[3, 4]]]
    assert [part.outputs["s"].tolist() for part in parts] == [5, 5]


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_a_stream_without_rows(shape: tuple[int, ...]) -> None:
    """A scalar, and a tensor without rows, is one part."""
    assert [part.outputs["x"].shape for part in stream(load(), {"x": np.zeros(shape, np.float32)})] == [shape]


def test_a_stream_of_unequal_rows() -> None:
    """Inputs whose rows do not pair are refused before the first part."""
    backend = load({"inputs": {"x": {}, "y": {}}})
    with pytest.raises(InvalidTensor, match="different numbers of rows: 2, 3"):
        stream(backend, {"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)})


def test_a_closed_stream_stops() -> None:
    """Nobody waits for parts that nobody takes."""
    assert len(stream(load({"delay_ms": 1}), {"x": np.zeros(1 << 20, np.float32)}, most=2)) == 2


def test_the_delay() -> None:
    """Each answer is held back: the loop runs on meanwhile."""
    backend = load({"delay_ms": 10})

    async def race() -> list[str]:
        finished: list[str] = []

        async def answer() -> None:
            await backend.infer(InferenceRequest({"x": np.zeros(1, np.float32)}))
            finished.append("answer")

        async def tick() -> None:
            await asyncio.sleep(0)
            finished.append("tick")

        await asyncio.gather(answer(), tick())
        await backend.close()
        return finished

    assert asyncio.run(race()) == ["tick", "answer"]
