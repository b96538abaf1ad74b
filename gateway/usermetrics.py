"""What users' classes measure, as Seldon has them: counters, gauges and timers, under the names that they gave.

Source: seldon-core, python/seldon_core/metrics.py; a timer's value is in milliseconds.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

MOST_NAMES = 128
MOST_SERIES = 1024
MOST_TAGS = 8
LONGEST_NAME, LONGEST_VALUE = 128, 128
TIMER_BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Seconds."""
_RESERVED = ("tensorgate_", "process_", "python_")
_WRONG = re.compile(r"[^A-Za-z0-9_]")


class _Kind:
    """One name: its type and labels are those of its first use."""

    def __init__(self, kind: str, tags: tuple[str, ...]) -> None:
        self.kind = kind
        self.tags = tags
        self.values: dict[tuple[str, ...], float] = {}
        self.buckets: dict[tuple[str, ...], list[int]] = {}


class UserMetrics:
    """Bounded in names, labels and series; what is beyond that is dropped and counted."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._series = 0
        self.dropped = 0

    def record(self, service: str, metrics: Any) -> None:
        """Count what one answer brought."""
        for one in metrics if isinstance(metrics, list) else ():
            if not self._taken(service, one):
                self.dropped += 1

    def _taken(self, service: str, one: Mapping[str, Any]) -> bool:
        kind, key, value, tags = one.get("type"), one.get("key"), one.get("value"), one.get("tags") or {}
        if kind not in ("COUNTER", "GAUGE", "TIMER") or not isinstance(key, str) or not isinstance(value, int | float):
            return False
        name = _name(key)
        if not name or name.startswith(_RESERVED) or len(tags) > MOST_TAGS or (kind == "COUNTER" and value < 0):
            return False
        labels = {_name(tag): str(text)[:LONGEST_VALUE] for tag, text in sorted(tags.items())}
        known = self._kinds.get(name)
        if known is None:
            if len(self._kinds) >= MOST_NAMES or not all(labels) or "service" in labels or "le" in labels:
                return False
            known = self._kinds[name] = _Kind(kind, tuple(labels))
        if (known.kind, known.tags) != (kind, tuple(labels)):
            return False
        return self._add(known, (service, *labels.values()), float(value))

    def _add(self, known: _Kind, series: tuple[str, ...], value: float) -> bool:
        if series not in known.values:
            if self._series >= MOST_SERIES:
                return False
            self._series += 1
            known.values[series] = 0.0
            known.buckets[series] = [0] * (len(TIMER_BOUNDS) + 1)
        if known.kind == "GAUGE":
            known.values[series] = value
        elif known.kind == "COUNTER":
            known.values[series] += value
        else:
            known.values[series] += value / 1000
            known.buckets[series][bisect_left(TIMER_BOUNDS, value / 1000)] += 1
        return True

    def collect(self) -> Iterator[Metric]:
        """The families, and how much was dropped."""
        for name, known in self._kinds.items():
            yield _family(name, known)
        dropped = CounterMetricFamily("tensorgate_user_metrics_dropped", "Metrics of users' classes that were dropped")
        dropped.add_metric([], self.dropped)
        yield dropped


def _family(name: str, known: _Kind) -> Metric:
    labels = ["service", *known.tags]
    text = "Of a user's class"
    if known.kind == "TIMER":
        timer = HistogramMetricFamily(f"{name}_seconds", text, labels=labels)
        bounds = [*(f"{bound:g}" for bound in TIMER_BOUNDS), "+Inf"]
        for series, buckets in known.buckets.items():
            totals = list(zip(bounds, accumulate(buckets), strict=True))
            timer.add_metric(list(series), totals, known.values[series])
        return timer
    kind = CounterMetricFamily if known.kind == "COUNTER" else GaugeMetricFamily
    family = kind(name, text, labels=labels)
    for series, value in known.values.items():
        family.add_metric(list(series), value)
    return family


def _name(text: str) -> str:
    """As Prometheus can have it; empty where nothing is left."""
    name = _WRONG.sub("_", text[:LONGEST_NAME])
    return f"_{name}" if name[:1].isdigit() else name
