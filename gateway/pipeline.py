"""The life of a request, top to bottom: route, credential, body, service, limits, decode, infer, encode."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gateway.admission import admit, granted
from gateway.body import Body, ClientGone
from gateway.bounds import Bounds
from gateway.deadlines import in_time
from gateway.deferral import Deferrals
from gateway.errors import (
    DeadlineExceeded,
    GatewayError,
    ModelNotFound,
    ModelNotReady,
    NotReady,
    RequestError,
    Unauthenticated,
)
from gateway.forwarding import FORWARDS, told_to_backend
from gateway.gate import Visit, Who
from gateway.grants import Grant
from gateway.interfaces import Adapter, Answer, Defer, Describe, Index, Infer, Manage, Metrics, Ready, Status
from gateway.lifecycle import Loaded
from gateway.model_control import ModelControl
from gateway.observe import Observer
from gateway.offload import Offload
from gateway.outputs import FEW_BYTES, check_answer, check_outputs
from gateway.paths import PathTable, Route, unclaimed
from gateway.plane import Plane
from gateway.pressure import Stage
from gateway.replies import failure, note, whole, with_allowance
from gateway.routing import Service, told
from gateway.shadow import Shadows
from gateway.steps import in_task
from gateway.streaming import Both, Chunks, Parts
from gateway.trace import DECODE, ENCODE, QUEUE, RECEIVE, RUN, Trace, current
from gateway.types import Call, InferenceRequest, InferenceResponse, Reply, RequestSeries, Target

_GO_ON = (Ready, Metrics, Answer, Manage)
"""Operations that are answered even when there is no memory left: health, and what frees some."""

Answered = Callable[[InferenceRequest, InferenceResponse], None]
"""Told of an answer before it is encoded."""

StreamEncoder = Callable[[AsyncIterator[InferenceResponse], InferenceRequest, Call], Reply]


class Admitted(Struct, frozen=True):
    """A call whose path is known and whose head and body have passed."""

    route: Route
    call: Call
    plane: Plane
    opened: Grant
    """What its key opens."""
    trace: Trace
    body: Body

    def who(self) -> Who:
        """Whose budgets it uses."""
        return self.plane.who(self.call, self.opened, self.trace.peer)

    def arrived(self) -> float:
        """When it came, on the monotonic clock."""
        return self.trace.arrived()


class Pipeline:
    """Answers calls; knows every step but no wire format and no model runtime."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        plane: Plane,
        observer: Observer,
        control: ModelControl,
        deferrals: Deferrals,
        bounds: Bounds,
    ) -> None:
        self.paths = PathTable(adapters)
        self._unclaimed = unclaimed(self.paths.examples())
        self.plane = plane
        """Replaced whole when the services change."""
        self._observer = observer
        self.draining = False
        """Whether the process is leaving: it answers on, but is ready for nobody new."""
        self._offload = Offload()
        self._shadows = Shadows(observer.shadows, Offload())
        self._control = control
        self._deferrals = deferrals
        self._limits = bounds.limits
        self._pressure = bounds.pressure

    async def answer(self, head: Call, body: Body, trace: Trace) -> Reply:
        """The reply to a call, errors included, in the caller's dialect. Raises ClientGone only."""
        try:
            route = self.paths.find(head)
        except RequestError as error:
            return self._refuse(error, head, trace)
        trace.protocol, trace.operation = route.protocol, route.name
        current.set(trace)
        call = route.call(head, b"", trace.id)
        plane, auth = self.plane, self.plane.auth
        try:
            if self._pressure.stage is Stage.OUT and not isinstance(route.operation, _GO_ON):
                raise self._limits.no_memory()
            # PERF: a coroutine only where some key needs one.
            opened = await granted(plane, route, call, trace) if auth.has_slow else None
            opened = admit(plane, route, call, trace, opened)
            body.check_length(call)
            payload = await body.read(call, ignores_unknown_codings=route.adapter.ignores_unknown_codings)
            trace.mark(RECEIVE)
            if auth.verifies:
                opened = await self._offload.run(len(body.sent), auth.verified, head, opened, body.sent)
            call = route.call(head, payload, trace.id)
            return await self._operate(Admitted(route, call, plane, opened, trace, body))
        except ClientGone:
            raise
        except Unauthenticated as error:
            return failure(self.paths.speaking(route, call), call, trace, self._limits.wrong_key(error, trace.peer))
        except Exception as error:
            return failure(self.paths.speaking(route, call), call, trace, error)

    def leave(self, head: Call, trace: Trace) -> Reply:
        """What a caller is told whose request takes longer than the gateway stays."""
        error = NotReady("the gateway is leaving, and this request took longer than it stays; try again", 1.0)
        return failure(self.paths.find(head), head, trace, error)

    async def knock(self, head: Call, trace: Trace) -> Reply | None:
        """Why a websocket is not opened; None where its calls may come in, to be judged one by one."""
        try:
            route = self.paths.find(head)
            trace.protocol, trace.operation = route.protocol, route.name
            call = route.call(head, b"", trace.id)
            plane = self.plane
            admit(plane, route, call, trace, await granted(plane, route, call, trace))
        except GatewayError as error:
            return self._refuse(error, head, trace)
        return None

    def _refuse(self, error: GatewayError, head: Call, trace: Trace) -> Reply:
        claimant = self.paths.claimant(head)
        if claimant is None:
            return self._unclaimed
        trace.protocol, adapter = claimant
        return adapter.encode_error(error, head)

    async def _operate(self, admitted: Admitted) -> Reply:
        call, operation, directory = admitted.call, admitted.route.operation, admitted.plane.directory
        match operation:
            case Defer():
                return await self._defer(operation, admitted)
            case Infer():
                return await self._infer(operation, admitted)
            case Manage():
                await in_task()
                return operation.encode(await self._control.run(operation.command(call)), call)
            case Answer():
                return operation.reply(call)
            case Metrics():
                return operation.render(self._series(admitted))
            case Status():
                return self._status(operation, admitted)
            case Ready():
                ready = admitted.plane.ready(admitted.route, call, admitted.opened)
                return operation.encode(ready and not self.draining, call)
            case Describe():
                target = operation.target(call)
                service = self._service(admitted, target)
                metadata = admitted.plane.choose(service, target, call, counts=False).loaded.metadata
                versions = directory.versions(service)
                named = replace(metadata, name=target.model or service.name, versions=versions)
                return operation.encode(named, call, target)
            case Index():
                return operation.encode(list(directory.statuses(admitted.route, admitted.opened)), call)
        raise TypeError(f"an adapter yields an unknown operation: {type(operation).__name__}")

    def _series(self, admitted: Admitted) -> list[RequestSeries]:
        """The counters that the caller may see: a service's name is told to who may call it."""
        plane = admitted.plane
        series = self._observer.series()
        if plane.trusts(admitted.opened, admitted.trace.peer):
            return series
        shut = {service.name for service in plane.directory if service.protected}
        return [one for one in series if one.service not in shut]

    def _service(self, admitted: Admitted, target: Target) -> Service:
        """The service that is meant, if the caller may use it."""
        service = admitted.plane.directory.find(admitted.route, admitted.call, target)
        admitted.plane.auth.admit(admitted.call, admitted.opened, service)
        admitted.trace.service = service.name
        admitted.plane.require_running(service)
        return service

    def _choose(self, admitted: Admitted, service: Service, target: Target) -> Loaded:
        """The version that answers, of the service's deployment whose turn it is."""
        if service.canary is None:
            loaded = admitted.plane.directory.pick(service, target)
            admitted.trace.version = loaded.version
            return loaded
        choice = admitted.plane.choose(service, target, admitted.call)
        admitted.trace.variant = choice.variant
        admitted.trace.version = choice.loaded.version
        if choice.missed:
            self._observer.variants.miss(service.name)
        return choice.loaded

    def _status(self, operation: Status, admitted: Admitted) -> Reply:
        target = operation.target(admitted.call)
        try:
            service = self._service(admitted, target)
        except ModelNotFound:
            if target.model is None:
                raise
            return operation.encode(None, admitted.call, target)
        model = admitted.plane.directory.model(service)
        status = None if model is None else told(model, target.model or service.name, service.aliases)
        return operation.encode(status, admitted.call, target)

    async def _infer(self, operation: Infer, admitted: Admitted) -> Reply:
        call = admitted.call
        try:
            target = await self._offload.run(len(call.body), operation.target, call)
            service = self._service(admitted, target)
            # Of a service with a canary, only those who get a place take a turn.
            loaded = None if service.canary is not None else self._choose(admitted, service, target)
        except (ModelNotFound, ModelNotReady):
            if operation.check_body is not None:
                await self._offload.run(len(call.body), operation.check_body, call)
            raise
        operation = admitted.plane.own(operation, service, admitted.route)
        gate = self._limits.gate(service.name)
        visit = gate.enter(call, admitted)
        stage = "queue"
        try:
            if visit.turn is not None:
                await admitted.body.unless_gone(visit.come_in(), after=0.0)
            if loaded is None or visit.turn is not None:
                loaded = self._choose(admitted, service, target)
            admitted.trace.mark(QUEUE)
            stage = "run"
            answered = None
            if service.canary is not None:
                answered = functools.partial(self._shadow, admitted, service, operation, target)
            run = self._run(operation, call, target, loaded, admitted.trace, visit, admitted.body, answered)
            reply = await (run if visit.deadline is None else in_time(run, visit.deadline))
        except (ClientGone, DeadlineExceeded, asyncio.CancelledError):
            if stage == "run":
                gate.cancelled(stage)
            raise
        finally:
            visit.release()
        return with_allowance(reply, operation, visit)

    def _shadow(
        self, admitted: Admitted, service: Service, operation: Infer, target: Target,
        request: InferenceRequest, response: InferenceResponse,
    ) -> None:  # fmt: skip
        """Have the canary answer, too, if it is to."""
        canary = admitted.plane.shadowed(service, admitted.trace.variant)
        if canary is not None:
            self._shadows.copy(service, canary, operation, admitted.call, target, request, response)

    async def _run(
        self, operation: Infer, call: Call, target: Target, loaded: Loaded, trace: Trace,
        visit: Visit | None = None, body: Body | None = None, answered: Answered | None = None,
    ) -> Reply:  # fmt: skip
        """Decode, infer and encode, the version held meanwhile; a client whose `body` it was may end a long run."""
        loaded.acquire()
        try:
            request = await self._offload.decode(operation, call, target, loaded.metadata)
            trace.mark(DECODE)
            if isinstance(request, Reply):
                return request
            if len(call.body) > FEW_BYTES:
                check_outputs(request, loaded.metadata, self._limits.output_bytes)
            if visit is not None:
                visit.take_rows(request)
                if visit.deadline is not None:
                    request = replace(request, deadline=visit.deadline)
            if FORWARDS in loaded.metadata.extras:
                told = told_to_backend(call.headers, loaded.metadata.extras[FORWARDS], call.id)
                request = replace(request, headers=told)
            if request.stream and operation.stream is not None:
                await in_task()
                return await self._stream(operation.stream, loaded, request, call, trace, visit)
            run = loaded.backend.infer(request)
            # A client who leaves ends its run; one that has no task waits for a batch at most, and its connection sees.
            waited = visit is not None and visit.turn is not None
            if loaded.needs_no_task and not waited:
                response = await run
            else:
                await in_task()
                response = await (run if body is None else body.unless_gone(run))
            trace.mark(RUN)
            if "metrics" in response.parameters:
                self._observer.user_metrics.record(trace.service, response.parameters["metrics"])
            size = check_answer(response, self._limits.output_bytes)
            if answered is not None:
                answered(request, response)
            reply = await self._offload.run(size, operation.encode, response, request, call)
            trace.mark(ENCODE)
            return reply
        finally:
            loaded.release()

    async def _defer(self, operation: Defer, admitted: Admitted) -> Reply:
        """Answer now, run later. What is wrong with the body, or was found where it lies, is told in the result."""
        await in_task()
        call, deferrals = admitted.call, self._deferrals
        target = operation.target(call)
        service = self._service(admitted, target)
        operation = admitted.plane.own(operation, service, admitted.route)
        self._limits.gate(service.name).charge(call, admitted)
        self._choose(admitted, service, target)
        variant = admitted.trace.variant
        uri = operation.input_uri(call)
        deferrals.admit(call.body, uri)
        slot = await deferrals.hold(operation.id(call))
        try:
            reply = operation.accepted(slot.results, call)
        except BaseException:
            deferrals.give_up(slot)
            raise

        async def run() -> bytes:
            body = await asyncio.to_thread(deferrals.inputs.read, uri) if uri else call.body
            later = replace(call, body=body, deadline=None)
            loaded = admitted.plane.choose_again(service, target, variant).loaded
            return whole(await self._run(operation, later, target, loaded, admitted.trace))

        def failed(error: Exception) -> bytes:
            body = whole(failure(admitted.route, call, admitted.trace, error))
            if admitted.trace.failed:
                self._observer.variants.fail(service.name, variant)
            return body

        deferrals.start(slot, len(call.body), run, failed)
        return reply

    async def _stream(
        self, encode: StreamEncoder, loaded: Loaded, request: InferenceRequest, call: Call, trace: Trace,
        visit: Visit | None,
    ) -> Reply:  # fmt: skip
        held = loaded if visit is None else Both(loaded, visit)
        failed = functools.partial(note, trace, f"{call.method} {call.raw_path[:256]}")
        parts = Parts(loaded.backend.stream(request), held, failed, request.deadline)
        try:
            await parts.prime()
            trace.mark(RUN)
            reply = encode(parts, request, call)
        except BaseException:
            await parts.aclose()
            raise
        assert not isinstance(reply.body, bytes)
        return replace(reply, body=Chunks(reply.body, parts))
