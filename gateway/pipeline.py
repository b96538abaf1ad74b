"""The life of a request, top to bottom: route, credential, body, service, decode, infer, encode."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from gateway.auth import Authenticator
from gateway.body import Body, ClientGone
from gateway.errors import GatewayError, InferenceFailed, ModelNotFound, RequestError
from gateway.interfaces import Adapter, Answer, Describe, Infer, Metrics, Status
from gateway.observe import Observer, Trace
from gateway.paths import PathTable, Route
from gateway.routing import Directory, Service
from gateway.types import Call, InferenceResponse, Reply, Target

OFFLOAD_BYTES = 1 << 20
"""Bodies and answers from this size on are decoded and encoded on a thread."""
# PERF: a body blocks the event loop for about 1.5 ms a MiB; a hop to a thread costs 0.05 ms.

_log = logging.getLogger("tensorgate.request")

P = ParamSpec("P")
R = TypeVar("R")


class Pipeline:
    """Answers calls; knows every step but no wire format and no model runtime."""

    def __init__(
        self, adapters: Mapping[str, Adapter], directory: Directory, auth: Authenticator, observer: Observer
    ) -> None:
        self.paths = PathTable(adapters)
        self._directory = directory
        self._auth = auth
        self._observer = observer

    async def answer(self, head: Call, body: Body, trace: Trace) -> Reply:
        """The reply to a call, errors included, in the caller's dialect. Raises ClientGone only."""
        try:
            route = self.paths.find(head)
        except RequestError as error:
            return self._refuse(error, head, trace)
        trace.protocol, trace.operation = route.protocol, route.name
        call = Call(head.method, route.path, route.params, head.query, head.headers)
        try:
            opened = self._auth.opened(call)
            self._auth.admit_any(call, opened, self._directory.reachable(route, call))
            body.check_length(call)
            payload = await body.read(call, ignores_unknown_codings=route.adapter.ignores_unknown_codings)
            call = Call(head.method, route.path, route.params, head.query, head.headers, payload)
            return await self._operate(route, call, opened, trace)
        except GatewayError as error:
            if error.__cause__ is not None:
                _log.error("%s: %s", trace.id, error, exc_info=error.__cause__)
            return route.adapter.encode_error(error, call)
        except ClientGone:
            raise
        except Exception:
            _log.exception("%s: %s %s failed", trace.id, head.method, route.operation.path)
            failed = InferenceFailed(f"internal error; the log has its reason under request {trace.id}")
            return route.adapter.encode_error(failed, call)

    def _refuse(self, error: GatewayError, head: Call, trace: Trace) -> Reply:
        claimant = self.paths.claimant(head)
        if claimant is None:
            return Reply(b'{"error": "not found"}', 404)
        trace.protocol, adapter = claimant
        return adapter.encode_error(error, head)

    async def _operate(self, route: Route, call: Call, opened: frozenset[str], trace: Trace) -> Reply:
        operation = route.operation
        if isinstance(operation, Infer):
            return await self._infer(operation, route, call, opened, trace)
        if isinstance(operation, Answer):
            return operation.reply(call)
        if isinstance(operation, Metrics):
            return operation.render(self._observer.series())
        target = operation.target(call)
        if isinstance(operation, Status):
            return self._status(operation, route, call, target, opened, trace)
        assert isinstance(operation, Describe)
        service = self._service(route, call, target, opened, trace)
        metadata = self._directory.pick(service, target).backend.metadata
        return operation.encode(replace(metadata, name=target.model or service.name), call, target)

    def _service(self, route: Route, call: Call, target: Target, opened: frozenset[str], trace: Trace) -> Service:
        service = self._directory.find(route, call, target)
        self._auth.admit(call, opened, service.name)
        trace.service = service.name
        return service

    def _status(
        self, operation: Status, route: Route, call: Call, target: Target, opened: frozenset[str], trace: Trace
    ) -> Reply:
        try:
            service = self._service(route, call, target, opened, trace)
        except ModelNotFound:
            if target.model is None:
                raise
            return operation.encode(None, call, target)
        model = self._directory.model(service)
        status = None if model is None else replace(model.status, name=target.model or service.name)
        return operation.encode(status, call, target)

    async def _infer(self, operation: Infer, route: Route, call: Call, opened: frozenset[str], trace: Trace) -> Reply:
        try:
            target = operation.target(call)
            service = self._service(route, call, target, opened, trace)
            loaded = self._directory.pick(service, target)
        except ModelNotFound:
            if operation.check_body is not None:
                await _sized(len(call.body), operation.check_body, call)
            raise
        trace.version = loaded.version
        loaded.acquire()
        try:
            backend = loaded.backend
            request = await _sized(len(call.body), operation.decode, call, target, backend.metadata)
            response = await backend.infer(request)
            return await _sized(_nbytes(response), operation.encode, response, request, call)
        finally:
            loaded.release()


async def _sized(size: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a pure function here, or on a thread where it has many bytes to work on."""
    if size < OFFLOAD_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


def _nbytes(response: InferenceResponse) -> int:
    return sum(tensor.nbytes for tensor in response.outputs.values())
