"""The meta of an answer: what the request's meta leaves in it, and what the model adds.

Source: seldon-core, python/seldon_core/utils.py (construct_response_json) and metrics.py (validate_metrics).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from adapters.seldon.errors import BadMetric

Meta = dict[str, Any]

_METRIC_TYPES = ("COUNTER", "GAUGE", "TIMER")


def answer_meta(
    request: Meta | None, parameters: Mapping[str, Any], own_metrics: bool, path: Mapping[str, str]
) -> Meta:
    """SPEC: tags and metrics of the request, then the model's; puid as it came; everything else is dropped.

    Raises BadMetric.
    """
    given = request or {}
    tags = {**(given.get("tags") or {}), **(parameters.get("tags") or {})}
    metrics = [*(given.get("metrics") or []), *(checked_metrics(parameters.get("metrics")) if own_metrics else [])]
    request_path = {**path, **(given.get("requestPath") or {})}
    found = {"puid": given.get("puid"), "tags": tags, "metrics": metrics, "requestPath": request_path}
    return {name: value for name, value in found.items() if value}


def checked_metrics(metrics: Any) -> Sequence[Meta]:
    """The model's own metrics. Raises BadMetric."""
    if not metrics:
        return []
    if isinstance(metrics, list) and all(map(_is_metric, metrics)):
        return metrics
    raise BadMetric(f"Bad metric created during request: {_text(metrics)}")


def _is_metric(metric: Any) -> bool:
    if not isinstance(metric, dict) or not metric.keys() >= {"key", "type", "value"}:
        return False
    number = isinstance(metric["value"], int | float) and not isinstance(metric["value"], bool)
    return number and isinstance(metric["key"], str) and metric["type"] in _METRIC_TYPES


def _text(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()[:500]
    except orjson.JSONEncodeError:
        return "it is not even JSON"


def merged(metas: Sequence[Meta | None]) -> Meta | None:
    """SPEC: several messages' metas as one: tags and paths of all, the last wins; all metrics; the first one's puid."""
    given = [meta or {} for meta in metas]
    first = metas[0] if metas else None
    return {
        "puid": (first or {}).get("puid"),
        "tags": _union(given, "tags"),
        "requestPath": _union(given, "requestPath"),
        "metrics": [metric for meta in given for metric in meta.get("metrics") or []],
    }


def _union(metas: Sequence[Meta], key: str) -> Meta:
    return {name: value for meta in metas for name, value in (meta.get(key) or {}).items()}
