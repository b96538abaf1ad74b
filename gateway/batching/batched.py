"""A backend whose requests are answered together, as far as the model allows it: the outermost wrapper."""

import logging
from collections.abc import AsyncIterator, Mapping
from math import prod
from typing import Any

from msgspec.structs import replace

from gateway.batching.config import BatchingConfig
from gateway.batching.proof import Verdict, tried
from gateway.batching.queue import Group, Queue
from gateway.batching.run import Runner
from gateway.batching.tally import Tally
from gateway.errors import LoadFailed
from gateway.interfaces import Backend, BackendStatus, Parallel
from gateway.steps import in_task
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata, Signature, Tensor

MOST_GROUPS = 256
"""Kinds of requests remembered."""
MOST_BYTES = 64 << 20
"""Of the rows of one run."""

log = logging.getLogger("tensorgate.batching")


async def batched(backend: Backend, config: BatchingConfig) -> Backend:
    """The backend, its requests answered together where the configuration and the model have it so.

    Raises LoadFailed where they are to be, but the model draws random numbers.
    """
    config = replace(config, pad_to=tuple(sorted(set(config.pad_to))))
    most_rows: dict[str, int] = {}
    for name, signature in backend.metadata.signatures.items():
        if config.mode == "on" and signature.batchable == "never":
            raise LoadFailed(
                f"batching: mode: 'on', but what {name!r} answers depends on chance, on past requests, "
                "or has rows of different lengths"
            )
        verdict = await _verdict(backend, signature, config)
        if verdict.most_rows > 1 or (config.mode == "on" and config.pad_to):
            most_rows[name] = verdict.most_rows
        elif verdict.reason:
            metadata = backend.metadata
            log.info("%s %s: %s: not batched: %s", metadata.name, metadata.version, name, verdict.reason)
    return Batched(backend, config, most_rows) if most_rows else backend


async def _verdict(backend: Backend, signature: Signature, config: BatchingConfig) -> Verdict:
    if config.mode == "on":
        return Verdict(config.max_batch_size)
    if config.mode == "off" or signature.batchable != "likely" or config.max_batch_size == 1:
        return Verdict(1)
    return await tried(backend, signature, config.max_batch_size)


class Batched:
    """Requests that come together share a run."""

    needs_no_task = True

    def __init__(self, inner: Backend, config: BatchingConfig, most_rows: Mapping[str, int]) -> None:
        """`most_rows` by signature; those it lacks are passed through."""
        self.metadata: ModelMetadata = inner.metadata
        self.tally = Tally()
        self.most_rows = most_rows
        self._inner = inner
        runs = inner.runs_at_once if isinstance(inner, Parallel) else 1
        runner = Runner(inner, config.pad_to, self.tally)
        self._pads = bool(config.pad_to)
        self._queue = Queue(runner, self.tally, runs, config.max_delay_us / 1e6)
        self._groups: dict[tuple[Any, ...], Group | None] = {}
        """By what must be alike; None for requests that are passed through, often to be refused."""

    @property
    def inner(self) -> Backend:
        """What is wrapped."""
        return self._inner

    @property
    def status(self) -> BackendStatus:
        """The inner backend's."""
        return self._inner.status

    @property
    def process_bytes(self) -> int:
        """What its workers hold of the machine's memory, where it has any."""
        return int(getattr(self._inner, "process_bytes", 0))

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Together with whatever comes at the same time; alone if it is large, or like no other."""
        if not request.parameters:
            key, rows = _kind(request)
            group = self._groups.get(key) or self._group(key, request)
            if group is not None and 0 < rows <= group.largest:
                return self._queue.at_once(request) or await self._queue.put(group, request, rows)
        await in_task()
        return await self._inner.infer(request)

    def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The inner backend's parts."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """Close the inner backend; nobody waits any more."""
        await self._inner.close()

    def _group(self, key: tuple[Any, ...], request: InferenceRequest) -> Group | None:
        if key not in self._groups:
            if len(self._groups) >= MOST_GROUPS:
                self._groups = {kind: group for kind, group in self._groups.items() if group and group.waiting}
            self._groups[key] = self._made(request)
        return self._groups[key]

    def _made(self, request: InferenceRequest) -> Group | None:
        signature = self.metadata.signatures.get(request.signature)
        most_rows = self.most_rows.get(request.signature)
        if signature is None or most_rows is None or not _fits(request, signature):
            return None
        row_bytes = sum(prod(tensor.shape[1:]) * tensor.itemsize for tensor in request.inputs.values())
        most_rows = min(most_rows, MOST_BYTES // max(1, row_bytes))
        return Group(most_rows, most_rows if self._pads else most_rows // 2, row_bytes)


def _kind(request: InferenceRequest) -> tuple[tuple[Any, ...], int]:
    """What must be alike in requests that are run together, and the rows of this one; 0 where inputs differ in them."""
    key: list[Any] = [request.signature, request.outputs]
    rows = -1
    for name, tensor in request.inputs.items():
        shape = tensor.shape
        first = shape[0] if shape else 0
        rows = first if rows in (-1, first) else 0
        key += (name, tensor.dtype, shape[1:], len(shape))
    return tuple(key), rows


def _fits(request: InferenceRequest, signature: Signature) -> bool:
    """Whether it is what the signature takes, as far as that says; what does not fit is refused alone."""
    if request.inputs.keys() != signature.inputs.keys() or not signature.outputs.keys() >= set(request.outputs):
        return False
    for name, tensor in request.inputs.items():
        spec = signature.inputs[name]
        if not tensor.ndim or (spec.dtype != "any" and tensor.dtype != spec.numpy_dtype):
            return False
        if spec.shape is not None and not _has_shape(tensor, spec.shape):
            return False
    return True


def _has_shape(tensor: Tensor, shape: tuple[int | None, ...]) -> bool:
    """Whether a row of it is one of that shape, whatever the number of rows."""
    return tensor.ndim == len(shape) and all(
        size is None or size == given for size, given in zip(shape[1:], tensor.shape[1:], strict=True)
    )
