"""A model file to a loaded backend, an answer and a closed backend."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backends import ort
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest, ModelMetadata

Answer = tuple[dict[str, np.ndarray], ModelMetadata]
Serve = Callable[[Path, dict[str, np.ndarray]], Answer]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Serve one model file to one request."""

    version = tmp_path / "1"
    version.mkdir()

    async def run(inputs: dict[str, np.ndarray]) -> Answer:
        source = ModelSource("node_test", 1, version, tmp_path, device="cpu")
        backend = await ort.load(source, ort.Config())
        try:
            return (await backend.infer(InferenceRequest(inputs))).outputs, backend.metadata
        finally:
            await backend.close()

    def serve_file(model: Path, inputs: dict[str, np.ndarray]) -> Answer:
        shutil.copyfile(model, version / "model.onnx")
        return asyncio.run(run(inputs))

    return serve_file
