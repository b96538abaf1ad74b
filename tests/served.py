"""A backend that is loaded, for tests that ask it without a gateway."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gateway.interfaces import Backend
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
"""The fixture `load`: a model, then config, sessions and fields of ModelSource by keyword."""
