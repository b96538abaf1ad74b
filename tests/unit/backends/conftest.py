"""A model becomes a backend, and one request its answer."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest

from backends import ort
from gateway.interfaces import Backend, ModelSource
from gateway.types import InferenceRequest, InferenceResponse


class Served:
    """A loaded backend on an event loop of its own."""

    def __init__(self, runner: asyncio.Runner, backend: Backend) -> None:
        self.runner = runner
        self.backend = backend

    def infer(self, inputs: Mapping[str, Any], **request: Any) -> dict[str, np.ndarray]:
        """The outputs for those inputs."""
        return self.runner.run(self.respond(inputs, **request)).outputs

    async def respond(self, inputs: Mapping[str, Any], **request: Any) -> InferenceResponse:
        """The whole response."""
        return await self.backend.infer(InferenceRequest(dict(inputs), **request))


Load = Callable[..., Served]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop for the test."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def load(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Load]:
    """Write the model, load it, close it in the end. Keywords: config, sessions, and fields of ModelSource."""
    loaded: list[Backend] = []

    def load_model(
        model: onnx.ModelProto | bytes | None, config: ort.Config | None = None, sessions: Any = None, **source: Any
    ) -> Served:
        root = tmp_path / "demo"
        folder = root / "1"
        if model is not None:
            onnx_models.write(model, folder)
        described = ModelSource(**{"name": "demo", "version": 1, "directory": folder, "root": root, **source})
        loaded.append(runner.run(ort.load(described, config or ort.Config(), sessions)))
        return Served(runner, loaded[-1])

    yield load_model
    for backend in loaded:
        runner.run(backend.close())
