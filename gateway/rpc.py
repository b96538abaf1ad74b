"""gRPC: the pipeline's calls that came as messages. A method is an operation whose path is its full name.

Imported only where `grpc_port` is set.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from time import monotonic
from typing import Any

import grpc

from gateway.accesslog import AccessLog
from gateway.bodies import Bodies
from gateway.body import Body
from gateway.config import Config, ConfigError
from gateway.interfaces import GRPC, GRPC_STATUS
from gateway.observe import Observer
from gateway.pipeline import Pipeline
from gateway.trace import RequestIds, Trace, given_id
from gateway.types import Call, Reply

MOST_CALLS = 2048
"""At the same time; beyond, gRPC itself answers RESOURCE_EXHAUSTED."""

_MESSAGE = "grpc-message"
_CODES: Mapping[str, grpc.StatusCode] = {str(code.value[0]): code for code in grpc.StatusCode}


class RpcServer:
    """The port for gRPC."""

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        observer: Observer,
        log: AccessLog | None,
        bodies: Bodies | None = None,
    ) -> None:
        self._config = config
        self._bodies = bodies or Bodies(config.limits)
        self._pipeline = pipeline
        self._observer = observer
        self._log = log
        self._ids = RequestIds()
        self._server: Any = None
        if not self._handlers():
            raise ConfigError("gateway.grpc_port: none of the protocols that are on speaks gRPC")

    async def start(self) -> None:
        """Listen. Raises ConfigError where the address cannot be had."""
        gateway = self._config.gateway
        host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=MOST_CALLS,
            options=(
                ("grpc.max_receive_message_length", self._config.limits.body_bytes),
                ("grpc.max_send_message_length", -1),
                # With it, a second gateway on the port would take every other connection.
                ("grpc.so_reuseport", int(gateway.workers > 1)),
            ),
        )
        self._server.add_generic_rpc_handlers(self._handlers())
        try:
            self._server.add_insecure_port(f"{host}:{gateway.grpc_port}")
        except RuntimeError:
            raise ConfigError(f"cannot listen on {host}:{gateway.grpc_port} for gRPC") from None
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Refuse new calls, and let those in flight finish, at most so long; again only shortens that."""
        if self._server is not None:
            await self._server.stop(seconds)

    def _handlers(self) -> tuple[Any, ...]:
        """A handler for each service that the adapters have methods of."""
        services: dict[str, dict[str, Any]] = defaultdict(dict)
        for method, path, _, _ in self._pipeline.paths.rows():
            if method == GRPC:
                _, service, name = path.split("/")
                services[service][name] = grpc.unary_unary_rpc_method_handler(partial(self._answer, path))
        return tuple(grpc.method_handlers_generic_handler(*one) for one in services.items())

    async def _answer(self, path: str, message: bytes, context: Any) -> bytes:
        """One call. Its deadline, and a client that leaves, cancel it."""
        left = context.time_remaining()
        deadline = None if left is None else monotonic() + left
        head = Call(GRPC, path, headers=_headers(context.invocation_metadata()), deadline=deadline)
        trace = Trace(given_id(head) or self._ids(), _peer(context.peer()), GRPC, path)
        trace.bytes_in = len(message)
        observer = self._observer
        observer.in_flight += 1
        if observer.recorders is not None:
            observer.recorders.begin(head, trace)
        body = Body(_whole(message), self._config.limits, self._bodies, lambda: message)
        try:
            reply = await self._pipeline.answer(head, body, trace)
            if observer.recorders is not None:
                reply = observer.recorders.answered(head, message, reply, trace)
            trace.status = reply.status
            context.set_trailing_metadata(_trailers(reply, trace))
            sent = await _result(reply, context)
            trace.bytes_out = len(sent)
            return sent
        finally:
            body.close()
            observer.in_flight -= 1
            observer.record(trace)
            if self._log is not None:
                self._log.add(trace)


async def _result(reply: Reply, context: Any) -> bytes:
    """The answer's message, or the call's end with a status."""
    told = dict(reply.headers)
    code = _CODES.get(told.get(GRPC_STATUS, "0" if reply.status == 200 else "2"), grpc.StatusCode.UNKNOWN)
    if code is not grpc.StatusCode.OK:
        await context.abort(code, told.get(_MESSAGE, ""), context.trailing_metadata())
    assert isinstance(reply.body, bytes)
    return reply.body


def _peer(name: str) -> str:
    """The address in gRPC's name of a peer: `ipv4:127.0.0.1:33508`."""
    return name.partition(":")[2].rpartition(":")[0].strip("[]")


def _headers(metadata: Any) -> list[tuple[bytes, bytes]]:
    return [(key.encode("latin-1"), _octets(value)) for key, value in metadata or ()]


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")


def _trailers(reply: Reply, trace: Trace) -> tuple[tuple[str, str], ...]:
    own = tuple((name.lower(), value) for name, value in reply.headers if name.lower() not in (GRPC_STATUS, _MESSAGE))
    variant = (("x-tensorgate-variant", trace.variant),) if trace.variant else ()
    return (("x-request-id", trace.id), *variant, *own)


def _whole(message: bytes) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    """The message as a request's body that has arrived."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": message, "more_body": False}

    return receive
