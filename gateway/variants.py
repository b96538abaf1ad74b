"""How each variant of a service does: what it answered, how much of that failed, how long it took."""

import itertools
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from gateway.trace import CLIENT_GONE, Trace

SUBSTEPS = 4
BOUNDS = tuple(1e-5 * 1.8 ** (step / SUBSTEPS) for step in range(33 * SUBSTEPS))
"""Seconds; each bound 16 % above the one before, so that a percentile is known that well."""


class Tally(Struct, frozen=True):
    """What has been counted so far, or between two moments."""

    requests: int = 0
    failures: int = 0
    """Those that were not the caller's fault: the model's, the server's, or too late."""
    seconds: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """Answers by the first of `BOUNDS` that they did not exceed, then those above the last."""

    def since(self, before: "Tally") -> "Tally":
        """What has come since then."""
        buckets = tuple(now - then for now, then in zip(self.buckets, before.buckets, strict=True))
        return Tally(
            self.requests - before.requests, self.failures - before.failures, self.seconds - before.seconds, buckets
        )

    def plus(self, other: "Tally") -> "Tally":
        """Both together: two processes' counts of one variant."""
        buckets = tuple(one + two for one, two in zip(self.buckets, other.buckets, strict=True))
        return Tally(
            self.requests + other.requests, self.failures + other.failures, self.seconds + other.seconds, buckets
        )

    @property
    def failure_percent(self) -> float:
        """How many failed."""
        return 100.0 * self.failures / self.requests if self.requests else 0.0

    def percentile(self, percent: float) -> float:
        """Seconds within which so many percent were answered, interpolated inside of a bucket; 0 without any."""
        wanted = self.requests * percent / 100
        counted = 0
        for number, count in enumerate(self.buckets):
            if count and counted + count >= wanted:
                low = BOUNDS[number - 1] if number else 0.0
                high = BOUNDS[min(number, len(BOUNDS) - 1)]
                return float(low + (high - low) * max(0.0, wanted - counted) / count)
            counted += count
        return 0.0


Tallies = Mapping[tuple[str, str], Tally]
"""Service and variant to what was counted since the start."""


class _Counts:
    """One variant's, bumped on the event loop only."""

    __slots__ = ("buckets", "failures", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.failures = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)


class Variants:
    """The counts of every service with a canary; they go on when a weight changes."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], _Counts] = {}
        self._missed: dict[str, int] = {}

    def record(self, trace: Trace) -> None:
        """Count a finished request that a variant was picked for; one whose caller left says nothing of either."""
        if trace.status == CLIENT_GONE:
            return
        key = (trace.service, trace.variant)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _Counts()
        counts.requests += 1
        counts.failures += trace.failed
        counts.seconds += trace.seconds
        counts.buckets[bisect_left(BOUNDS, trace.seconds)] += 1

    def miss(self, service: str) -> None:
        """The stable deployment answered in the place of a canary that could not."""
        self._missed[service] = self._missed.get(service, 0) + 1

    def fail(self, service: str, variant: str) -> None:
        """A request that was counted as answered has failed after all: its answer came later."""
        if counts := self._counts.get((service, variant)):
            counts.failures += 1

    def keep(self, services: Container[str]) -> None:
        """Forget those of other services."""
        self._counts = {key: counts for key, counts in self._counts.items() if key[0] in services}
        self._missed = {name: count for name, count in self._missed.items() if name in services}

    def tallies(self) -> Tallies:
        """Service and variant to what was counted since the start."""
        return {
            key: Tally(counts.requests, counts.failures, counts.seconds, tuple(counts.buckets))
            for key, counts in self._counts.items()
        }

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        labels = ["service", "variant"]
        failures = CounterMetricFamily(
            "tensorgate_variant_failures", "Answers of a variant that failed by no fault of the caller", labels=labels
        )
        latency = HistogramMetricFamily(
            "tensorgate_variant_seconds", "As tensorgate_request_seconds, for services with a canary", labels=labels
        )
        missed = CounterMetricFamily(
            "tensorgate_canary_missed", "Requests for a canary that could not answer, and did not", labels=["service"]
        )
        names = [*(f"{bound:.6g}" for bound in BOUNDS[::SUBSTEPS]), "+Inf"]
        for key, tally in self.tallies().items():
            failures.add_metric(key, tally.failures)
            totals = list(itertools.accumulate(tally.buckets))
            shown = [*totals[:-1:SUBSTEPS], totals[-1]]
            latency.add_metric(key, list(zip(names, shown, strict=True)), tally.seconds)
        for service, count in self._missed.items():
            missed.add_metric([service], count)
        yield from (failures, latency, missed)
