"""What users' classes measure, on the metrics page."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe import Observer
from gateway.usermetrics import MOST_NAMES, MOST_SERIES, MOST_TAGS


def page(observer: Observer) -> dict[str, float]:
    """The samples of users' classes, as `name{label=value}`."""
    told = {}
    for family in text_string_to_metric_families(observer.page().decode()):
        for sample in family.samples:
            if "service" in sample.labels or "dropped" in sample.name:
                told[f"{sample.name}{','.join(f'{key}={value}' for key, value in sample.labels.items())}"] = (
                    sample.value
                )
    return told


def test_counters_gauges_and_timers() -> None:
    """Counters add up, gauges keep the last value, and timers, given in milliseconds, are histograms in seconds."""
    observer = Observer()
    for value in (1, 2.5):
        observer.user_metrics.record(
            "fraud",
            [
                {"type": "COUNTER", "key": "seen", "value": value, "tags": {"country": "at"}},
                {"type": "GAUGE", "key": "score", "value": value},
                {"type": "TIMER", "key": "lookup-time", "value": value * 10},
            ],
        )
    told = page(observer)
    assert told["seen_totalcountry=at,service=fraud"] == 3.5
    assert told["scoreservice=fraud"] == 2.5
    assert told["lookup_time_seconds_countservice=fraud"] == 2
    assert told["lookup_time_seconds_sumservice=fraud"] == 0.035
    assert told["lookup_time_seconds_bucketle=0.01,service=fraud"] == 1
    assert told["tensorgate_user_metrics_dropped_total"] == 0


@pytest.mark.parametrize(
    "one",
    [
        {"type": "COUNTER", "key": "tensorgate_requests", "value": 1},
        {"type": "COUNTER", "key": "process_x", "value": 1},
        {"type": "COUNTER", "key": "down", "value": -1},
        {"type": "RATE", "key": "x", "value": 1},
        {"type": "GAUGE", "key": "", "value": 1},
        {"type": "GAUGE", "key": "x", "value": "1"},
        {"type": "GAUGE", "key": "x", "value": 1, "tags": {"service": "other"}},
        {"type": "GAUGE", "key": "x", "value": 1, "tags": {str(number): "" for number in range(MOST_TAGS + 1)}},
        {"type": "GAUGE", "key": "known", "value": 1},
        {"type": "COUNTER", "key": "known", "value": 1, "tags": {"other": "tag"}},
    ],
)
def test_what_cannot_be_exported_is_dropped(one: dict[str, Any]) -> None:
    """Names of the gateway's own, other types and labels than before, and what is no metric are counted as dropped."""
    observer = Observer()
    observer.user_metrics.record("s", [{"type": "COUNTER", "key": "known", "value": 1}, one])
    assert page(observer) == {"known_totalservice=s": 1, "tensorgate_user_metrics_dropped_total": 1}


def test_names_and_series_are_bounded() -> None:
    """A class that makes up names and tags without end fills neither the memory nor the page."""
    observer = Observer()
    for number in range(MOST_NAMES + 10):
        observer.user_metrics.record("s", [{"type": "GAUGE", "key": f"name{number}", "value": 1}])
    for number in range(MOST_SERIES + 10):
        one = {"type": "GAUGE", "key": "name0", "value": 1}
        observer.user_metrics.record(f"s{number}", [one])
    told = page(observer)
    assert len(told) == MOST_SERIES + 1
    assert told["tensorgate_user_metrics_dropped_total"] == 10 + 10 + MOST_NAMES


def test_hostile_names() -> None:
    """A name that Prometheus cannot have is written with underscores, and values cannot break the page."""
    observer = Observer()
    one = {"type": "GAUGE", "key": '9 lives{a="b"}\n', "value": 1, "tags": {"a b": 'x"\n} 5'}}
    observer.user_metrics.record("s", [one])
    assert any(name.startswith("_9_lives_a__b___") for name in page(observer))
