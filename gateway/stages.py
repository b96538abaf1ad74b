"""How long the stages of requests take: histograms for the metrics page, and the Server-Timing header."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from time import perf_counter

from prometheus_client.core import HistogramMetricFamily, Metric

from gateway.trace import BATCH, RUN, STAGES, Trace

BOUNDS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Seconds."""

ASKS = b"x-tensorgate-timing"
"""The header by which a caller asks for Server-Timing."""


class _Counts:
    """One stage of one service's requests."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        """One more request, which took so long."""
        self.seconds += seconds
        self.buckets[bisect_left(BOUNDS, seconds)] += 1


class StageCounts:
    """Plain integers, bumped on the event loop only."""

    def __init__(self) -> None:
        self._services: dict[str, list[_Counts]] = {}

    def record(self, trace: Trace) -> None:
        """Count the stages of a request that is over."""
        # PERF: 0.8 us for five stages, beside 0.4 for their marks.
        counts = self._services.get(trace.service)
        if counts is None:
            counts = self._services[trace.service] = [_Counts() for _ in STAGES]
        start = trace.started
        for stage, end in trace.marks:
            if stage == RUN and trace.waited > 0:
                waited = min(trace.waited, end - start)
                counts[BATCH].add(waited)
                start += waited
            counts[stage].add(end - start)
            start = end

    def collect(self) -> Iterator[Metric]:
        """The metric."""
        family = HistogramMetricFamily(
            "tensorgate_stage_seconds", "How long a stage of a request took", labels=["service", "stage"]
        )
        names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        for service, counts in self._services.items():
            for stage, count in zip(STAGES, counts, strict=True):
                if any(count.buckets):
                    totals = list(zip(names, accumulate(count.buckets), strict=True))
                    family.add_metric([service, stage], totals, count.seconds)
        yield family


def server_timing(trace: Trace) -> str:
    """The header's value: the stages so far and the total, in milliseconds."""
    told = [f"{STAGES[stage]};dur={(end - start) * 1e3:.3f}" for stage, start, end in trace.stages()]
    return ", ".join([*told, f"total;dur={(perf_counter() - trace.started) * 1e3:.3f}"])
