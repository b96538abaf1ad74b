"""Answers with what it was sent; for trying clients, and for tests. It needs no model file, and it streams rows."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from backends._ports import InputPort, check_wanted, gather, input_port
from backends._signatures import Wiring, not_found, wirings
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import Backend, BackendStatus, ModelSource
from gateway.types import (
    FLOAT32_CARRIED,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Tensor,
    TensorSpec,
)

DTYPES = FLOAT32_CARRIED | {"string", "bool", "float16", "float32", "float64"}
DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class InputConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `inputs`."""

    dtype: str = "float32"
    shape: tuple[Annotated[int, Meta(ge=-1)], ...] | None = None
    """-1 for a free dimension; without a shape, any is taken."""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[echo]` table of model.toml."""

    inputs: dict[str, InputConfig] = msgspec.field(default_factory=lambda: {"x": InputConfig()})
    suffix: str = ""
    """An output is named as its input, followed by this."""
    delay_ms: Annotated[float, Meta(ge=0, le=600_000)] = 0
    """How long each answer, or each part of a streamed one, is held back."""


async def load(source: ModelSource, config: Config) -> Backend:
    """An echo with those inputs. Raises LoadFailed."""
    inputs = {name: _spec(name, one) for name, one in config.inputs.items()}
    outputs = {f"{name}{config.suffix}": _spec(f"{name}{config.suffix}", one) for name, one in config.inputs.items()}
    plans = {name: _Plan(wiring, config.suffix) for name, wiring in wirings(source.signatures, inputs, outputs).items()}
    return EchoBackend(source, plans, config.delay_ms / 1000)


def _spec(name: str, config: InputConfig) -> TensorSpec:
    if config.dtype not in DTYPES:
        raise LoadFailed(f"echo.inputs.{name}: unknown dtype {config.dtype!r}; there are {', '.join(sorted(DTYPES))}")
    shape = None if config.shape is None else tuple(None if size < 0 else size for size in config.shape)
    return TensorSpec(name, config.dtype, shape)


class _Plan:
    """One signature, and the input that each of its outputs repeats."""

    def __init__(self, wiring: Wiring, suffix: str) -> None:
        self.signature = wiring.signature
        self.ports: tuple[InputPort, ...] = tuple(
            input_port(name, self.signature.inputs[name], inner=own) for name, own in wiring.inputs.items()
        )
        self.repeats = {name: own.removesuffix(suffix) for name, own in wiring.outputs.items()}
        for name, own in self.repeats.items():
            if own not in wiring.inputs.values():
                raise LoadFailed(
                    f"signatures.{self.signature.name}: output {name!r} repeats input {own!r}, "
                    "which the signature does not take"
                )


class EchoBackend:
    """One loaded echo."""

    def __init__(self, source: ModelSource, plans: dict[str, _Plan], delay_seconds: float) -> None:
        signatures = {name: plan.signature for name, plan in plans.items()}
        self.metadata = ModelMetadata(source.name, source.version, "echo", signatures)
        self.status = BackendStatus("echo")
        self._plans = plans
        self._delay_seconds = delay_seconds

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """The inputs, once."""
        outputs = self._outputs(request)
        await self._hold_back()
        return InferenceResponse(outputs)

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The inputs, one row at a time; what has no rows comes whole. Shapes: [rows, ...] -> [1, ...] each."""
        outputs = self._outputs(request)
        for row in range(_rows(outputs)):
            await self._hold_back()
            yield InferenceResponse(
                {name: value[row : row + 1] if value.ndim else value for name, value in outputs.items()}
            )

    async def close(self) -> None:
        """There is nothing to free."""

    async def _hold_back(self) -> None:
        if self._delay_seconds:
            await asyncio.sleep(self._delay_seconds)

    def _outputs(self, request: InferenceRequest) -> dict[str, Tensor]:
        plan = self._plans.get(request.signature)
        if plan is None:
            raise not_found(request.signature, self._plans)
        inputs: dict[str, Any] = {}
        gather(plan.ports, request.inputs, inputs)
        check_wanted(request.outputs, plan.repeats)
        wanted = request.outputs or plan.repeats
        return {name: inputs[own] for name, own in plan.repeats.items() if name in wanted}


def _rows(outputs: dict[str, Tensor]) -> int:
    """At least 1: an empty tensor is streamed as one empty part."""
    rows = {len(value) for value in outputs.values() if np.ndim(value)}
    if len(rows) > 1:
        raise InvalidTensor(f"the inputs have different numbers of rows: {', '.join(map(str, sorted(rows)))}")
    return max(*rows, 1) if rows else 1
