"""What batching did, on the metrics page."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from gateway.batching.batched import Batched
from gateway.batching.tally import Histogram
from gateway.interfaces import Backend

Version = tuple[str, int, Backend]
"""A model's name, the version, and what answers it."""


def collect(versions: Iterable[Version]) -> Iterator[Metric]:
    """Of all versions whose requests are answered together."""
    labels = ["model", "version"]
    requests = HistogramMetricFamily("tensorgate_batch_requests", "Requests answered by one run", labels=labels)
    waits = HistogramMetricFamily(
        "tensorgate_batch_wait_seconds", "Of each run, how long its first request waited for it", labels=labels
    )
    retries = CounterMetricFamily(
        "tensorgate_batch_retries", "Runs that failed for several requests, and were repeated in halves", labels=labels
    )
    for model, version, backend in versions:
        if (batched := _batched(backend)) is not None:
            told = [model, str(version)]
            _add(requests, told, batched.tally.requests)
            _add(waits, told, batched.tally.waits)
            retries.add_metric(told, batched.tally.retries)
    yield from (requests, waits, retries)


def _batched(backend: Any) -> Batched | None:
    """It, or what a version that comes and goes has in memory just now."""
    inner = getattr(backend, "backend", backend)
    return inner if isinstance(inner, Batched) else None


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    names = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    family.add_metric(labels, list(zip(names, itertools.accumulate(histogram.counts), strict=True)), histogram.total)
