"""A model behind a server that takes tensors: its signatures are the server's, or those of model.toml."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from backends._ports import InputPort, check_wanted, gather, input_port
from backends._signatures import not_found, wirings
from backends.remote.client import Ask, Client
from backends.remote.failures import bad_answer
from backends.remote.settings import ALWAYS_FORWARDED, Config, specs
from backends.remote.tfserving import TFServing
from backends.remote.v2 import V2
from backends.remote.values import fitting
from backends.remote.watch import Watch
from gateway.errors import GatewayError, LoadFailed
from gateway.interfaces import BackendStatus, ModelSource
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata, Signature, Tensor

_LARGE = 16384
"""PERF: elements whose JSON takes more than about 2 ms, so that it is written and read on a thread."""


class Dialect(Protocol):
    """How a server is asked; `asked` gives the body of a call."""

    platform: str
    probe: str

    async def signatures(self, asked: Any) -> dict[str, Signature]:
        """What the server tells."""

    def ask(self, signature: Signature, inputs: Mapping[str, Tensor], request: InferenceRequest) -> Ask:
        """The call."""

    def read(self, body: bytes, headers: Mapping[str, str], signature: Signature) -> dict[str, Tensor]:
        """The outputs."""


class Plan(Struct, frozen=True):
    """One signature here, and the server's that it stands for."""

    signature: Signature
    ports: tuple[InputPort, ...]
    outputs: dict[str, str]
    theirs: Signature


def dialect_of(source: ModelSource, config: Config) -> TFServing | V2:
    """The server's."""
    return (TFServing if config.kind == "tfserving" else V2)(config.model or source.name, config)


async def plans_of(source: ModelSource, config: Config, dialect: Dialect, client: Client) -> dict[str, Plan]:
    """The signatures. Raises LoadFailed."""
    if config.inputs:
        declared = Signature(
            config.signature, "predict", specs(config.inputs, "inputs"), specs(config.outputs, "outputs")
        )
        told = {config.signature: declared}
    else:
        try:
            told = await dialect.signatures(client.whole)
        except GatewayError as error:
            raise LoadFailed(
                f"{error}; the model's inputs and outputs are not known: give them in [remote.inputs.NAME] and "
                "[remote.outputs.NAME]"
            ) from None
    if not source.signatures:
        return {name: _plan(one, {name: name for name in one.inputs}, {name: name for name in one.outputs}, one)
                for name, one in told.items()}  # fmt: skip
    theirs = told.get(config.signature)
    if theirs is None:
        raise LoadFailed(f"remote.signature: the server has no signature {config.signature!r}; it has {sorted(told)}")
    found = wirings(source.signatures, theirs.inputs, theirs.outputs)
    return {name: _plan(one.signature, one.inputs, one.outputs, theirs) for name, one in found.items()}


def _plan(signature: Signature, inputs: dict[str, str], outputs: dict[str, str], theirs: Signature) -> Plan:
    ports = tuple(input_port(name, signature.inputs[name], inner=own) for name, own in inputs.items())
    return Plan(signature, ports, outputs, theirs)


class TensorBackend:
    """One model at such servers."""

    def __init__(
        self,
        source: ModelSource,
        config: Config,
        plans: dict[str, Plan],
        dialect: TFServing | V2,
        client: Client,
        watch: Watch,
    ) -> None:
        signatures = {name: plan.signature for name, plan in plans.items()}
        forwards = (*ALWAYS_FORWARDED, *(name.lower() for name in config.forward_headers))
        self.metadata = ModelMetadata(
            source.name, source.version, dialect.platform, signatures, extras={"forwards": forwards}
        )
        self._plans, self._dialect, self._client, self._watch = plans, dialect, client, watch

    @property
    def status(self) -> BackendStatus:
        """Whether the servers answer."""
        return self._watch.status

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Ask a server. Raises GatewayError."""
        plan = self._plans.get(request.signature)
        if plan is None:
            raise not_found(request.signature, self._plans)
        inputs: dict[str, Any] = {}
        gather(plan.ports, request.inputs, inputs)
        check_wanted(request.outputs, plan.outputs)
        dialect = self._dialect
        if isinstance(dialect, V2):
            await dialect.prepare(self._client.whole)
        large = sum(array.size for array in inputs.values()) > _LARGE
        ask = await _run(large, dialect.ask, plan.theirs, inputs, request)
        async with self._client.open(ask) as answer:
            body, headers = await answer.whole(), answer.headers
        found = await _run(len(body) > 4 * _LARGE, dialect.read, body, headers, plan.theirs)
        return InferenceResponse(
            {
                name: _given(found, own, plan.signature.outputs[name])
                for name, own in plan.outputs.items()
                if name in (request.outputs or plan.outputs)
            }
        )

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The one answer."""
        yield await self.infer(request)

    async def close(self) -> None:
        """Close all connections."""
        await self._watch.close()
        await self._client.close()


async def _run(large: bool, function: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments) if large else function(*arguments)


def _given(found: Mapping[str, Tensor], name: str, spec: Any) -> Tensor:
    if name not in found:
        raise bad_answer(f"output {name[:128]!r} is missing")
    return fitting(found[name], spec, name)
