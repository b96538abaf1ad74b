"""Copies of requests for a canary: bounded, compared, and never anybody's concern but the report's."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scene import on_loop

from gateway import shadow
from gateway.config import ShadowConfig
from gateway.differences import ShadowReport, ShadowReports
from gateway.errors import InferenceFailed, InvalidTensor
from gateway.interfaces import BackendStatus, Infer
from gateway.lifecycle import Loaded
from gateway.offload import Offload
from gateway.routing import Deployment, Service
from gateway.shadow import Shadows
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, ResponseForm, Target

STABLE = InferenceResponse({"y": np.float32([1, 2])})
REQUEST = InferenceRequest({"x": np.float32([0])}, stream=True)
CALL = Call("POST", "/", body=b"1234")


class Canary:
    """A model that answers as it is told, when it may."""

    metadata = ModelMetadata("new", 1, "fake", {})
    status = BackendStatus("CPU")

    def __init__(self, answer: InferenceResponse | Exception = STABLE) -> None:
        self.answer = answer
        self.may = asyncio.Event()
        self.may.set()
        self.asked: list[InferenceRequest] = []

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        self.asked.append(request)
        await self.may.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        yield await self.infer(request)

    async def close(self) -> None:
        """Nothing is held."""


class Stand:
    """A service with a shadow."""

    def __init__(self, canary: Canary, decoded: InferenceRequest | Reply | Exception = REQUEST, **fields: Any) -> None:
        self.reports = ShadowReports()
        self.shadows = Shadows(self.reports, Offload())
        self.loaded = Loaded(1, canary, "", 0.0, ResponseForm())
        self.decoded = decoded
        deployment = Deployment("new", None, 0, ShadowConfig(percent=100, **fields))
        self.service = Service("digits", "old", "any", False, (), canary=deployment)
        self.operation = Infer(method="POST", path="/", decode=self._decode, encode=lambda *_: Reply(b""))

    def _decode(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest | Reply:
        assert metadata.name == "new"
        if isinstance(self.decoded, Exception):
            raise self.decoded
        return self.decoded

    def copy(self, call: Call = CALL, request: InferenceRequest = REQUEST) -> None:
        self.shadows.copy(self.service, self.loaded, self.operation, call, Target(), request, STABLE)

    @property
    def report(self) -> ShadowReport:
        return self.reports.of("digits")

    def counts(self) -> tuple[int, int, int, int]:
        """Same, different, failed, skipped."""
        return self.report.same, self.report.different, self.report.failed, self.report.skipped


@on_loop
async def test_a_copy_is_decoded_run_and_compared() -> None:
    """By the canary's own signature, as no stream, with a deadline of its own; the version is held meanwhile."""
    canary = Canary(InferenceResponse({"other": np.float32([1, 2.5])}))
    stand = Stand(canary)
    stand.copy()
    assert (stand.loaded.in_flight, stand.counts()) == (1, (0, 0, 0, 0))
    await stand.shadows.finished()
    await asyncio.sleep(0)
    assert (stand.loaded.in_flight, stand.counts()) == (0, (0, 1, 0, 0))
    assert stand.report.outputs["y"].largest == 0.5
    assert (canary.asked[0].stream, canary.asked[0].deadline is not None) == (False, True)


@on_loop
async def test_copies_are_bounded() -> None:
    """By number; what is over is counted, not kept."""
    canary = Canary()
    canary.may.clear()
    stand = Stand(canary, at_once=3)
    for _ in range(10):
        stand.copy()
    assert stand.counts() == (0, 0, 0, 7)
    canary.may.set()
    await stand.shadows.finished()
    assert stand.counts() == (3, 0, 0, 7)
    stand.copy()
    await stand.shadows.finished()
    assert stand.counts() == (4, 0, 0, 7)


@on_loop
async def test_copies_hold_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies and answers together, over all services."""
    monkeypatch.setattr(shadow, "HELD_BYTES", 3 * 1000)
    stand = Stand(Canary(), at_once=100)
    for _ in range(5):
        stand.copy(replace(CALL, body=bytes(900)))
    await stand.shadows.finished()
    assert stand.counts() == (3, 0, 0, 2)


@pytest.mark.parametrize("error", [InferenceFailed("no"), RuntimeError("bug"), TimeoutError()])
def test_a_canary_that_fails_is_counted(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason, once."""
    caplog.set_level(logging.WARNING, "tensorgate.canary")

    @on_loop
    async def run() -> None:
        stand = Stand(Canary(error))
        for _ in range(3):
            stand.copy()
            await stand.shadows.finished()
        assert stand.counts() == (0, 0, 3, 0)
        assert len(caplog.records) == 1

    run()


@on_loop
async def test_a_body_that_the_canary_does_not_take_is_a_failure() -> None:
    """Its signature is another."""
    stand = Stand(Canary(), InvalidTensor("inputs.y is missing"))
    stand.copy()
    await stand.shadows.finished()
    assert (stand.counts(), stand.report.last_failure) == ((0, 0, 1, 0), "inputs.y is missing")


@on_loop
async def test_a_canary_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, which costs nobody anything."""
    monkeypatch.setattr(shadow, "SECONDS", 0.01)
    canary = Canary()
    canary.may.clear()
    stand = Stand(canary)
    stand.copy()
    await stand.shadows.finished()
    assert stand.counts() == (0, 0, 1, 0)


@on_loop
async def test_what_teaches_a_model_is_not_copied() -> None:
    """Feedback would be given twice."""
    canary = Canary()
    stand = Stand(canary)
    stand.copy(request=replace(REQUEST, signature="send_feedback"))
    await stand.shadows.finished()
    assert (canary.asked, stand.counts()) == ([], (0, 0, 0, 0))
