"""A request for which memory runs out is told so, in the caller's dialect, and the process goes on."""

from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from scene import on_loop

from gateway.body import Body
from gateway.bounds import Bounds
from gateway.config import Config
from gateway.deferral import Deferrals
from gateway.errors import GatewayError
from gateway.interfaces import Answer, Operation
from gateway.model_control import ModelControl
from gateway.models import Models
from gateway.observe import Observer
from gateway.pipeline import Pipeline
from gateway.plane import draw
from gateway.trace import Trace
from gateway.types import Call, Reply


class Tiny:
    """A protocol of one path, on which it fails."""

    ignores_unknown_codings = True

    def __init__(self, error: Exception) -> None:
        self.error = error

    def routes(self) -> Iterable[Operation]:
        yield Answer(method="POST", path="/tiny", reply=self.fail)

    def fail(self, call: Call) -> Reply:
        raise self.error

    def claims(self, call: Call) -> int:
        return 0

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        return Reply(f"{type(error).__name__}: {error}".encode(), 500)


async def receive() -> MutableMapping[str, Any]:
    """An empty body."""
    return {"type": "http.request", "body": b""}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError("Unable to allocate 8 EiB"), b"OutOfMemory: there is not enough memory for this request"),
        (KeyError("secret"), b"InferenceFailed: internal error; the log has its reason under request r-1"),
    ],
)
def test_what_nobody_expects_is_told_without_detail(tmp_path: Path, error: Exception, text: bytes) -> None:
    """Want of memory is told apart from a bug."""

    @on_loop
    async def run() -> None:
        config, models = Config(), Models([tmp_path])
        adapters = {"tiny": Tiny(error)}
        plane = draw(config, tmp_path, models, adapters)
        pipeline = Pipeline(
            adapters,
            plane,
            Observer(),
            ModelControl([], 0, models, lambda: plane.directory),
            Deferrals(config, tmp_path),
            Bounds(config),
        )
        reply = await pipeline.answer(Call("POST", "/tiny"), Body(receive, config.limits), Trace("r-1"))
        assert text == reply.body

    run()
