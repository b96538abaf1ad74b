"""Counters, the metrics page and the access log."""

import asyncio
import io
import json

from prometheus_client.parser import text_string_to_metric_families

from gateway.observe import BUCKET_BOUNDS, AccessLog, Observer, RequestIds, Trace
from gateway.summary import VersionSummary


def trace(service: str = "digits") -> Trace:
    """A request on its way to a service."""
    made = Trace("id-1")
    made.protocol, made.operation, made.service, made.version = "tfserving", "predict", service, 3
    return made


def samples(observer: Observer) -> dict[tuple[str, frozenset[str]], float]:
    """The page's samples, as (name, set of label values) -> value."""
    families = text_string_to_metric_families(observer.page().decode())
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


async def run_and_stop(log: AccessLog) -> None:
    """A log's whole life."""
    task = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_request_is_counted_with_its_bytes_and_time() -> None:
    """Requests, errors, bytes and latency all carry protocol, service, operation and code."""
    observer = Observer()
    observer.record(trace(), 200, 10, 20)
    observer.record(trace(), 200, 1, 2)
    observer.record(trace(), 400, 5, 5)
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
    observer.record(trace(), 200, 0, 0)
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


def test_request_ids_differ_between_requests_and_processes() -> None:
    """A counter behind a random prefix."""
    one, other = RequestIds(), RequestIds()
    assert len({one(), one(), other(), other()}) == 4


def test_the_log_is_one_json_line_a_request() -> None:
    """What was gathered is written at the latest when the log ends."""
    out = io.BytesIO()
    log = AccessLog(out)
    log.add(trace(), 0.0123, ("10.0.0.1", "POST", "/v1/models/" + "x" * 1000), 200, (1, 2))
    log.add(Trace("id-2"), 0.1, ("", "GET", "/nothing"), 404, (0, 3))
    asyncio.run(run_and_stop(log))
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert len(first["path"]) == 256
    assert {key: first[key] for key in ("id", "status", "ms", "service", "version")} == {
        "id": "id-1",
        "status": 200,
        "ms": 12.3,
        "service": "digits",
        "version": 3,
    }
    assert (second["id"], second["status"]) == ("id-2", 404)


def test_a_stuck_log_drops_lines_and_says_how_many() -> None:
    """Memory stays bounded when nobody reads the log."""
    out = io.BytesIO()
    log = AccessLog(out)
    log._MOST = 2
    for _ in range(5):
        log.add(trace(), 0.1, ("", "GET", "/"), 200, (0, 0))
    asyncio.run(run_and_stop(log))
    lines = out.getvalue().splitlines()
    assert json.loads(lines[0]) == {"dropped_lines": 3}
    assert len(lines) == 3
