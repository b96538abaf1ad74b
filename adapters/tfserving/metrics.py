"""Request counters under TF Serving's metric names, in the text format that its exporter writes.

Source: TF Serving, servables/tensorflow/util.cc and util/prometheus_exporter.cc.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gateway.types import RequestSeries

_PROTOCOL = "tfserving"

_COUNT = ":tensorflow:serving:request_count"
_LATENCY = ":tensorflow:serving:request_latency"
_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_APIS = {"predict": "Predict", "classify": "Classify", "regress": "Regress"}


def page(series: Sequence[RequestSeries]) -> str:
    """All inference requests that came by this protocol."""
    ours = [one for one in series if one.protocol == _PROTOCOL and one.operation in _APIS]
    return "\n".join([*_counts(ours), *_latencies(ours), ""])


def _counts(series: Iterable[RequestSeries]) -> Iterable[str]:
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for one in series:
        totals[one.service, _code(one.status)] += one.count
    yield f"# TYPE {_COUNT} counter"
    for (model, code), count in sorted(totals.items()):
        yield f"{_COUNT}{{{_labels(model_name=model, status=code)}}} {count}"


def _latencies(series: Iterable[RequestSeries]) -> Iterable[str]:
    groups: dict[tuple[str, str], list[RequestSeries]] = defaultdict(list)
    for one in series:
        groups[one.service, _APIS[one.operation]].append(one)
    yield f"# TYPE {_LATENCY} histogram"
    for (model, api), group in sorted(groups.items()):
        labels = _labels(model_name=model, API=api, entrypoint="REST")
        bounds = [*(f"{bound * 1e6:g}" for bound in group[0].bucket_bounds), "+Inf"]
        cumulative = 0
        for bound, counts in zip(bounds, zip(*(one.bucket_counts for one in group), strict=True), strict=True):
            cumulative += sum(counts)
            yield f'{_LATENCY}_bucket{{{labels},le="{bound}"}} {cumulative}'
        yield f"{_LATENCY}_sum{{{labels}}} {sum(one.seconds for one in group) * 1e6:.0f}"
        yield f"{_LATENCY}_count{{{labels}}} {cumulative}"


def _code(status: int) -> str:
    if status < 400:
        return "OK"
    return _CODES.get(status, "INVALID_ARGUMENT" if status < 500 else "UNKNOWN")


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
