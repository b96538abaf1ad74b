"""A models folder served by the real plugins, and a backend from outside that misbehaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scene import put

from gateway.models import Models

GRIM = '''
"""Does what the request's parameter says."""

import asyncio
import os
import signal

import numpy as np
from msgspec import Struct

from gateway import errors
from gateway.interfaces import BackendStatus
from gateway.types import InferenceResponse, ModelMetadata, Signature, TensorSpec


class Config(Struct):
    pass


class OddTensor(errors.InvalidTensor):
    pass


class Grim:
    def __init__(self, source):
        pid = TensorSpec("pid", "int64", ())
        signature = Signature("serving_default", "predict", {}, {"pid": pid})
        self.metadata = ModelMetadata(source.name, source.version, "grim", {"serving_default": signature})
        self.status = BackendStatus("CPU", "no CUDA here")
        self.cancelled = 0

    async def infer(self, request):
        do = request.parameters.get("do", "")
        if do == "wait":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if do == "hang":
            while True:
                pass
        if do.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, do))
        if do == "once" and not os.path.exists(request.parameters["mark"]):
            open(request.parameters["mark"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "fall back":
            self.status = BackendStatus("CPU", "CUDA failed", 1)
        if do == "SignatureNotFound":
            raise errors.SignatureNotFound("no such signature", "odd")
        if do == "UserError":
            raise errors.UserError("no", 418, "TEAPOT", {"tea": True})
        if do == "OutOfMemory":
            raise errors.OutOfMemory("no room", 7.0)
        if do == "OddTensor":
            raise OddTensor("odd")
        if do == "MemoryError":
            raise MemoryError
        if do == "KeyError":
            raise KeyError("/secret/path")
        if do in ("InvalidTensor", "InferenceFailed", "Overloaded", "DeadlineExceeded"):
            raise getattr(errors, do)("told so")
        return InferenceResponse({"pid": np.array(os.getpid())}, {"cancelled": self.cancelled})

    async def stream(self, request):
        for part in range(request.parameters["parts"]):
            if part == request.parameters.get("dies_at"):
                os.kill(os.getpid(), signal.SIGKILL)
            yield InferenceResponse({"part": np.array([part])})

    async def close(self):
        pass


async def load(source, config):
    return Grim(source)
'''


def install_grim(folder: Path) -> Path:
    """The backend `grim` as an installed distribution in that folder, which is to be on the path."""
    put(folder / "grim_backend.py", GRIM)
    put(folder / "grim-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: grim\nVersion: 1.0\n")
    put(folder / "grim-1.0.dist-info" / "entry_points.txt", "[tensorgate.backends]\ngrim = grim_backend\n")
    return folder


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[Models]:
    """The models of the folder, loaded for the length of a block."""
    models = Models([root], "cpu", drain_seconds=1.0)
    await models.start()
    try:
        yield models
    finally:
        await asyncio.wait_for(models.close(), 10)
