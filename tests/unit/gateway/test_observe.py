"""Counters and the metrics page."""

from prometheus_client.parser import text_string_to_metric_families

from gateway.observe import BUCKET_BOUNDS, Observer
from gateway.summary import VersionSummary
from gateway.trace import Trace


def ended(status: int, bytes_in: int, bytes_out: int) -> Trace:
    """A request that was answered."""
    made = Trace("id-1")
    made.protocol, made.operation, made.service, made.version = "tfserving", "predict", "digits", 3
    made.status, made.bytes_in, made.bytes_out = status, bytes_in, bytes_out
    return made


def samples(observer: Observer) -> dict[tuple[str, frozenset[str]], float]:
    """The page's samples, as (name, set of label values) -> value."""
    families = text_string_to_metric_families(observer.page().decode())
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_request_is_counted_with_its_bytes_and_time() -> None:
    """Requests, errors, bytes and latency all carry protocol, service, operation and code."""
    observer = Observer()
    observer.record(ended(200, 10, 20))
    observer.record(ended(200, 1, 2))
    observer.record(ended(400, 5, 5))
    page = samples(observer)
    kind = frozenset({"tfserving", "digits", "predict"})
    good, bad = kind | {"200"}, kind | {"400"}
    assert page["tensorgate_requests_total", good] == 2
    assert page["tensorgate_errors_total", bad] == 1
    assert ("tensorgate_errors_total", good) not in page
    assert page["tensorgate_request_bytes_total", good] == 11
    assert page["tensorgate_response_bytes_total", good] == 22
    assert page["tensorgate_request_seconds_count", good] == 2
    assert page["tensorgate_request_seconds_bucket", good | {"+Inf"}] == 2


def test_series_carry_the_same_counts_as_the_page() -> None:
    """An adapter that shows the counters under other names sees the same numbers."""
    observer = Observer()
    observer.record(ended(200, 0, 0))
    (series,) = observer.series()
    assert (
        series.protocol, series.service, series.operation, series.status, series.count,
    ) == ("tfserving", "digits", "predict", 200, 1)  # fmt: skip
    assert series.bucket_bounds == BUCKET_BOUNDS
    assert sum(series.bucket_counts) == 1


def test_the_page_shows_states_and_providers() -> None:
    """One sample a state, so that an alert on AVAILABLE == 0 works."""
    page = samples(Observer(lambda: [VersionSummary("m", 2, "AVAILABLE", "CPU", fallbacks=1)]))
    assert page["tensorgate_model_state", frozenset({"m", "2", "AVAILABLE"})] == 1
    assert page["tensorgate_model_state", frozenset({"m", "2", "END"})] == 0
    assert page["tensorgate_model_provider", frozenset({"m", "2", "CPU"})] == 1
    assert page["tensorgate_model_fallbacks_total", frozenset({"m", "2"})] == 1
