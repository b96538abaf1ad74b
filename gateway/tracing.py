"""OpenTelemetry's spans of requests, sent to a collector; imported only where one is configured.

Source: OpenTelemetry's semantic conventions for HTTP, and W3C Trace Context.
"""

import asyncio
import contextlib
import threading
from time import time_ns

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway import __version__
from gateway.observeconfig import TelemetryConfig
from gateway.trace import RUN, STAGES, Trace
from gateway.types import Call, Lap, laps, trace_headers

_PROPAGATED = ("traceparent", "tracestate")
_SEND_SECONDS = 5.0
_SEND_MILLISECONDS = 1000
_FLUSH_SECONDS = 3.0


class Spans:
    """A span for each request and, once it is over, one below it for each of its stages."""

    def __init__(self, config: TelemetryConfig) -> None:
        exporter = OTLPSpanExporter(config.endpoint, headers=dict(config.headers), timeout=_SEND_SECONDS)
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sample)),
            resource=Resource.create({"service.name": config.service_name, "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_SEND_MILLISECONDS))
        self._tracer = self._provider.get_tracer("tensorgate", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, head: Call, trace: Trace) -> None:
        """A request has come; other servers that are asked on its behalf are told of its span."""
        carrier = {name: value for name in _PROPAGATED if (value := head.header(name.encode("ascii"))) is not None}
        started = time_ns() - int(trace.elapsed() * 1e9)
        context = self._propagator.extract(carrier)
        span = self._tracer.start_span(trace.method, context, SpanKind.SERVER, start_time=started)
        kept: list[Lap] = []
        trace.span = (span, started, kept)
        if span.is_recording():
            laps.set(kept)
        told: dict[str, str] = {}
        self._propagator.inject(told, set_span_in_context(span))
        trace_headers.set(tuple(told.items()))

    def end(self, trace: Trace) -> None:
        """The request is over."""
        if not isinstance(trace.span, tuple):
            return
        span, started, kept = trace.span
        if not span.is_recording():
            return

        def at(moment: float) -> int:
            return int(started + (moment - trace.started) * 1e9)

        parent = within = set_span_in_context(span)
        for stage, start, end in trace.stages():
            below = self._tracer.start_span(STAGES[stage], parent, start_time=at(start))
            below.end(at(end))
            if stage == RUN:
                within = set_span_in_context(below)
        for lap in kept:
            attributes = dict(lap.attributes)
            below = self._tracer.start_span(lap.name, within, attributes=attributes, start_time=at(lap.start))
            below.end(at(lap.end))
        _describe(span, trace)
        span.end(at(trace.started + trace.seconds))

    async def close(self) -> None:
        """Send what is left, if the collector takes it soon; nobody waits longer for one that does not answer."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop may be gone
                loop.call_soon_threadsafe(closed.set)

        # NOTE: the SDK's own timeout is 30 s, and a thread of the loop's executor would be waited for.
        threading.Thread(target=shut_down, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await closed.wait()


def _describe(span: Span, trace: Trace) -> None:
    span.update_name(f"{trace.protocol} {trace.operation}" if trace.protocol else trace.method)
    span.set_attributes(
        {
            "http.request.method": trace.method,
            "url.path": trace.path[:256],
            "http.response.status_code": trace.status,
            "client.address": trace.peer,
            "http.request.body.size": trace.bytes_in,
            "http.response.body.size": trace.bytes_out,
            "tensorgate.request_id": trace.id,
            "tensorgate.service": trace.service,
            "tensorgate.version": trace.version,
            "tensorgate.variant": trace.variant,
        }
    )
    if trace.status >= 500:
        span.set_status(StatusCode.ERROR)
