"""What operators see: request counters, the metrics page and the access log."""

import asyncio
import itertools
import secrets
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from time import perf_counter
from typing import BinaryIO, get_args

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from gateway.summary import VersionSummary
from gateway.types import Call, RequestSeries, State

BUCKET_BOUNDS = tuple(1e-5 * 1.8**step for step in range(33))
"""Seconds. TF Serving's own latency buckets (10 us x 1.8^k), so that its dashboards can be fed from the same counts."""

_LONGEST_ID = 128


class Trace:
    """What is learned of one request on its way; the log line and the counters are made of it."""

    __slots__ = ("id", "operation", "protocol", "service", "started", "version")

    def __init__(self, request_id: str) -> None:
        self.started = perf_counter()
        self.id = request_id
        self.protocol = ""
        self.operation = ""
        self.service = ""
        """Set once resolved, so that made-up names never become labels."""
        self.version = 0


def given_id(head: Call) -> str | None:
    """The id that the call brings in X-Request-Id, if it is one that a log may hold."""
    given = head.header(b"x-request-id")
    if given is None or len(given) > _LONGEST_ID or not given.isascii() or not given.isprintable() or not given:
        return None
    return given


class RequestIds:
    """Ids for requests that bring none: a random prefix a process, then a counter."""

    # PERF: 0.1 us; uuid4 takes 1.5 us.
    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._next = itertools.count(1)

    def __call__(self) -> str:
        return f"{self._prefix}-{next(self._next):x}"


class _Counts:
    """One series: plain integers, bumped on the event loop only, read when a metrics page is asked for."""

    # PERF: 0.6 us a request; a prometheus_client histogram of 33 buckets plus two counters takes 6 us.
    __slots__ = ("buckets", "bytes_in", "bytes_out", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.buckets = [0] * (len(BUCKET_BOUNDS) + 1)


class Observer:
    """Counts every request once, at its end."""

    def __init__(self, versions: Callable[[], Iterable[VersionSummary]] = tuple) -> None:
        self._counts: dict[tuple[str, str, str, int], _Counts] = {}
        self._versions = versions
        self.in_flight = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def record(self, trace: Trace, status: int, bytes_in: int, bytes_out: int) -> float:
        """Count a finished request; returns how long it took, in seconds."""
        seconds = perf_counter() - trace.started
        key = (trace.protocol, trace.service, trace.operation, status)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _Counts()
        counts.count += 1
        counts.seconds += seconds
        counts.bytes_in += bytes_in
        counts.bytes_out += bytes_out
        counts.buckets[bisect_left(BUCKET_BOUNDS, seconds)] += 1
        return seconds

    def series(self) -> list[RequestSeries]:
        """The counters as data, for an adapter that shows them under its protocol's own names."""
        return [
            RequestSeries(*key, counts.count, counts.seconds, tuple(counts.buckets), BUCKET_BOUNDS)
            for key, counts in self._counts.items()
        ]

    def page(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry for each page."""
        yield from self._request_metrics()
        gauge = GaugeMetricFamily("tensorgate_requests_in_flight", "Requests being answered now")
        gauge.add_metric([], self.in_flight)
        yield gauge
        yield from self._model_metrics()

    def _request_metrics(self) -> Iterator[Metric]:
        labels = ["protocol", "service", "operation", "code"]
        requests = CounterMetricFamily("tensorgate_requests", "Requests answered", labels=labels)
        errors = CounterMetricFamily("tensorgate_errors", "Requests answered with a 4xx or 5xx code", labels=labels)
        received = CounterMetricFamily("tensorgate_request_bytes", "Body bytes received", labels=labels)
        sent = CounterMetricFamily("tensorgate_response_bytes", "Body bytes sent", labels=labels)
        latency = HistogramMetricFamily(
            "tensorgate_request_seconds", "From the end of the headers to the ready response", labels=labels
        )
        for (protocol, service, operation, status), counts in self._counts.items():
            values = [protocol, service, operation, str(status)]
            requests.add_metric(values, counts.count)
            if status >= 400:
                errors.add_metric(values, counts.count)
            received.add_metric(values, counts.bytes_in)
            sent.add_metric(values, counts.bytes_out)
            totals = itertools.accumulate(counts.buckets)
            names = [*(f"{bound:.6g}" for bound in BUCKET_BOUNDS), "+Inf"]
            latency.add_metric(values, list(zip(names, totals, strict=True)), counts.seconds)
        yield from (requests, errors, received, sent, latency)

    def _model_metrics(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "tensorgate_model_state", "1 for the state a version is in", labels=["model", "version", "state"]
        )
        provider = GaugeMetricFamily(
            "tensorgate_model_provider", "1 for where a version runs", labels=["model", "version", "provider"]
        )
        fallbacks = CounterMetricFamily(
            "tensorgate_model_fallbacks", "Times that the CPU took over from CUDA", labels=["model", "version"]
        )
        for one in self._versions():
            version = str(one.version)
            for name in get_args(State):
                state.add_metric([one.name, version, name], float(name == one.state))
            if one.provider:
                provider.add_metric([one.name, version, one.provider], 1.0)
                fallbacks.add_metric([one.name, version], one.fallbacks)
        yield from (state, provider, fallbacks)


class AccessLine(Struct, frozen=True, omit_defaults=True):
    """One line of the access log; no payload, no query, no key is ever in it."""

    time: datetime
    id: str
    peer: str
    method: str
    path: str
    status: int
    ms: float
    bytes_in: int
    bytes_out: int
    protocol: str = ""
    service: str = ""
    operation: str = ""
    version: int = 0


class AccessLog:
    """JSON lines, gathered and written a few times a second from a thread, so that a slow reader stalls nobody."""

    _SECONDS = 0.2
    _MOST = 50_000
    """Lines kept while the output is stuck; the rest are dropped and counted."""

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = out or sys.stderr.buffer
        self._lines: list[AccessLine] = []
        self._dropped = 0
        self._encoder = msgspec.json.Encoder()

    def add(
        self, trace: Trace, seconds: float, scope: tuple[str, str, str], status: int, sizes: tuple[int, int]
    ) -> None:
        """Note a finished request; `scope` is (peer, method, path), `sizes` are body bytes in and out."""
        if len(self._lines) >= self._MOST:
            self._dropped += 1
            return
        peer, method, path = scope
        self._lines.append(
            AccessLine(
                datetime.now(UTC), trace.id, peer, method, path[:256], status, round(seconds * 1e3, 3), *sizes,
                trace.protocol, trace.service, trace.operation, trace.version,
            )
        )  # fmt: skip

    async def run(self) -> None:
        """Write what gathers, until cancelled; then write the rest."""
        try:
            while True:
                await asyncio.sleep(self._SECONDS)
                if self._lines:
                    lines, self._lines = self._lines, []
                    await asyncio.to_thread(self._write, lines)
        finally:
            self._write(self._lines)
            self._lines = []

    def _write(self, lines: list[AccessLine]) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._out.write(b'{"dropped_lines":%d}\n' % dropped)
        self._out.write(b"".join(self._encoder.encode(line) + b"\n" for line in lines))
        self._out.flush()
