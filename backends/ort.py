"""ONNX models on ONNX Runtime: CUDA where it is there, the CPU where it is not or fails.

Tensors of bfloat16 and the float8 family travel as float32 through Casts at the graph's edges. Sequences of equal
shapes and maps are carried as one tensor, [items, ...] and [rows, keys].
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from backends import _graph
from backends._cuda import cuda_problem
from backends._device import Opened, Opener
from backends._failures import about_shapes, answer, logged, may_be_logged, of_device, out_of_memory, shown
from backends._pace import NEVER
from backends._plan import Plan, plans
from backends._ports import OutputPort
from backends._session import Config, OnnxRuntime, Session, Sessions, log, stoppable
from backends._signatures import not_found
from gateway.errors import GatewayError, InferenceFailed, LoadFailed, OutOfMemory
from gateway.interfaces import Backend, BackendStatus, Device, ModelSource
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata, Tensor

__all__ = ["Config", "cuda_problem", "load", "shared"]

PLATFORM = "onnxruntime_onnx"


def shared(device: Device) -> bool:
    """Whether many processes had better have a model once: on a GPU, whose memory each of them would fill."""
    return device != "cpu" and cuda_problem() is None


async def load(source: ModelSource, config: Config, sessions: Sessions | None = None) -> Backend:
    """The folder's model.onnx, warmed up. Raises LoadFailed or OutOfMemory, whose text shows no path."""
    return await asyncio.to_thread(_load, source, config, sessions or OnnxRuntime())


def _load(source: ModelSource, config: Config, sessions: Sessions) -> "OrtBackend":
    try:
        graph = _graph.read(source.directory, source.root)
        opener = Opener(source, graph, config, sessions)
        return OrtBackend(source, plans(graph, source.signatures), opener, opener.open(), config)
    except MemoryError:
        raise OutOfMemory(f"{_graph.MODEL_FILE} is larger than what is free") from None


class OrtBackend:
    """One loaded version of a model."""

    def __init__(
        self, source: ModelSource, plans: dict[str, Plan], opener: Opener, opened: Opened, config: Config
    ) -> None:
        self.metadata = ModelMetadata(
            name=source.name,
            version=source.version,
            platform=PLATFORM,
            signatures={name: plan.signature for name, plan in plans.items()},
        )
        self.status: BackendStatus = opened.status
        self._plans = plans
        self._opener = opener
        self._session: Session = opened.session
        self._pace = opened.pace
        self._proven = opened.proven
        self._may_fall_back = source.device == "auto" or config.fallback
        self._cpu: Session | None = None
        self._opening = asyncio.Lock()
        self._label = f"{source.name} version {source.version}"
        self._thread = ThreadPoolExecutor(1, f"ort-{source.name}")

    def infer_now(self, request: InferenceRequest) -> InferenceResponse | None:
        """Run once, if that is sure to be short; None also for a run that fails, which `infer` repeats and explains."""
        run = self._prepared(request)
        if run.elements > self._pace.inline_elements:
            return None
        try:
            return run.response(self._run_here(self._session, run))
        except GatewayError:
            raise
        except Exception:
            return None

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run once: on the event loop if it is sure to be short, else on the model's own thread."""
        run = self._prepared(request)
        session = self._session
        try:
            if run.elements <= self._pace.inline_elements:
                results = self._run_here(session, run)
            else:
                results = await self._on_thread(session, run.fetch, run.feed)
        except Exception as error:
            results = await self._recover(error, session, run.plan, request, run.fetch, run.feed)
        self._proven = True
        return run.response(results)

    def _prepared(self, request: InferenceRequest) -> "_Run":
        plan = self._plans.get(request.signature)
        if plan is None:
            raise not_found(request.signature, self._plans)
        feed, elements = plan.feed(request.inputs)
        if not request.outputs:
            return _Run(plan, feed, elements, plan.outputs, plan.names, plan.fetch)
        ports = plan.select(request.outputs)
        names, fetch = tuple(port.name for port in ports), tuple(port.inner for port in ports)
        return _Run(plan, feed, elements, ports, names, fetch)

    def _run_here(self, session: Session, run: "_Run") -> list[Any]:
        started = perf_counter()
        results = session.run(run.fetch, run.feed)
        self._pace.note(perf_counter() - started, run.elements)
        self._proven = True
        return results

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The one answer."""
        yield await self.infer(request)

    async def close(self) -> None:
        """Free the sessions, off the loop: a large model takes its time."""
        held = [self._session, self._cpu]
        del self._session, self._cpu
        self._thread.shutdown(wait=False)
        await asyncio.to_thread(held.clear)

    async def _on_thread(self, session: Session, fetch: Sequence[str], feed: dict[str, Any]) -> list[Any]:
        options = stoppable()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, session.run, fetch, feed, options)
        except asyncio.CancelledError:
            options.terminate = True  # nobody waits for it any more, and others wait for the thread
            raise

    # When a run fails...

    async def _recover(
        self,
        error: Exception,
        session: Session,
        plan: Plan,
        request: InferenceRequest,
        fetch: Sequence[str],
        feed: dict[str, Any],
    ) -> list[Any]:
        """The results from the CPU if it was CUDA that failed; else raises what the client is told."""
        if self._may_fall_back and self._on_cuda(session) and of_device(error):
            cpu = await self._take_over(error, session)
            try:
                return await self._on_thread(cpu, fetch, feed)
            except Exception as second:
                error = second
        raise self._failure(error, plan, request.inputs) from (error if may_be_logged(error) else None)

    def _on_cuda(self, session: Session) -> bool:
        return self.status.provider == "CUDA" or session is not self._session

    async def _take_over(self, error: Exception, failed: Session) -> Session:
        """A CPU session, for good unless only memory ran out: then the next request may well fit again."""
        async with self._opening:
            if failed is not self._session:
                return self._session
            try:
                cpu = await asyncio.to_thread(self._opener.open_cpu) if self._cpu is None else self._cpu
            except (LoadFailed, OutOfMemory) as second:
                log.error("%s: CUDA failed: %s; nor does the CPU take it: %s", self._label, error, second)
                raise InferenceFailed(f"CUDA failed, and the CPU cannot take over: {second}") from error
            self._cpu = cpu
            log.error("%s: CUDA failed, the CPU takes over: %s", self._label, error)
            reason = f"CUDA failed at run time: {shown(error, self._opener.hidden)}"
            self.status = replace(self.status, note=reason, fallbacks=self.status.fallbacks + 1)
            if not out_of_memory(error):
                self.status = replace(self.status, provider="CPU")
                self._session = cpu
                self._pace.inline_elements = NEVER
            return cpu

    def _failure(self, error: Exception, plan: Plan, inputs: dict[str, Tensor]) -> GatewayError:
        if isinstance(error, UnicodeEncodeError):
            for port in plan.inputs:
                if complaint := port.name in inputs and port.unencodable(inputs[port.name]):
                    return complaint
        failure = answer(error, self._proven, self._opener.hidden)
        if about_shapes(error):
            failure = plan.disagreement(inputs) or failure
        # A model that has never answered may be broken, whatever the client is told.
        quiet = log.debug if self._proven else log.warning
        level = log.error if isinstance(failure, InferenceFailed) else quiet
        level("%s: a run failed: %s", self._label, logged(error))
        return failure


class _Run(Struct, frozen=True):
    """A request as the session takes it."""

    plan: Plan
    feed: dict[str, Any]
    elements: int
    ports: tuple[OutputPort, ...]
    names: tuple[str, ...]
    fetch: tuple[str, ...]

    def response(self, results: list[Any]) -> InferenceResponse:
        """What the session gave, under the names that clients know. Raises InferenceFailed if no tensor holds it."""
        if self.plan.plain:
            return InferenceResponse(dict(zip(self.names, results, strict=True)))
        named = zip(self.ports, results, strict=True)
        return InferenceResponse({port.name: port.tensor(value) for port, value in named})
