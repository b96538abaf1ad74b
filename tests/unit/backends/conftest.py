"""A model becomes a loaded backend."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_models
import pytest
from served import Load, Served

from backends import ort
from gateway.interfaces import Backend, ModelSource


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
