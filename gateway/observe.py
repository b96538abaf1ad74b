"""Request counters and the page of metrics."""

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import get_args

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from gateway.differences import ShadowReports
from gateway.recorders import Recorders
from gateway.stages import StageCounts
from gateway.summary import VersionSummary
from gateway.trace import Trace
from gateway.types import RequestSeries, State
from gateway.usermetrics import UserMetrics
from gateway.variants import Variants

BUCKET_BOUNDS = tuple(1e-5 * 1.8**step for step in range(33))
"""Seconds. TF Serving's own latency buckets (10 us x 1.8^k), so that its dashboards can be fed from the same counts."""


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

    def __init__(
        self, versions: Callable[[], Iterable[VersionSummary]] = tuple, *more: Callable[[], Iterable[Metric]]
    ) -> None:
        self._counts: dict[tuple[str, str, str, int], _Counts] = {}
        self._versions = versions
        self._more = more
        self.recorders: Recorders | None = None
        self.in_flight = 0
        self.stages = StageCounts()
        self.user_metrics = UserMetrics()
        self.variants = Variants()
        self.shadows = ShadowReports()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def record(self, trace: Trace) -> None:
        """Count a finished request."""
        trace.seconds = seconds = perf_counter() - trace.started
        key = (trace.protocol, trace.service, trace.operation, trace.status)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _Counts()
        counts.count += 1
        counts.seconds += seconds
        counts.bytes_in += trace.bytes_in
        counts.bytes_out += trace.bytes_out
        counts.buckets[bisect_left(BUCKET_BOUNDS, seconds)] += 1
        if trace.marks:
            self.stages.record(trace)
        if trace.variant:
            self.variants.record(trace)
        if self.recorders is not None:
            self.recorders.end(trace)

    def series(self) -> list[RequestSeries]:
        """The counters as data, for an adapter that shows them under its protocol's own names."""
        return [
            RequestSeries(*key, counts.count, counts.seconds, tuple(counts.buckets), BUCKET_BOUNDS)
            for key, counts in self._counts.items()
        ]

    def page(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def families(self) -> Iterable[Metric]:
        """The metrics as data."""
        return self._registry.collect()

    def collect(self) -> Iterator[Metric]:
        """Called by the registry for each page."""
        yield from self._request_metrics()
        gauge = GaugeMetricFamily("tensorgate_requests_in_flight", "Requests being answered now")
        gauge.add_metric([], self.in_flight)
        yield gauge
        yield from self.stages.collect()
        for collect in self._more:
            yield from collect()
        if self.recorders is not None:
            yield from self.recorders.collect()
        yield from self.user_metrics.collect()
        yield from self.variants.collect()
        yield from self.shadows.collect()
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
