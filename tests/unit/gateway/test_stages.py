"""How long the stages of a request take, as counted and as told."""

import asyncio
import re

from prometheus_client.parser import text_string_to_metric_families
from scene import on_loop

from gateway.batching.run import Entry
from gateway.observe import Observer
from gateway.stages import server_timing
from gateway.trace import BATCH, DECODE, ENCODE, QUEUE, RECEIVE, RUN, Trace, current
from gateway.types import InferenceRequest


def went_through(*marks: tuple[int, float], waited: float = 0.0) -> Trace:
    """A request whose stages ended so many seconds after its start."""
    trace = Trace("id-1")
    trace.protocol, trace.service, trace.operation = "tfserving", "digits", "predict"
    trace.marks = [(stage, trace.started + seconds) for stage, seconds in marks]
    trace.waited = waited
    return trace


def samples(observer: Observer) -> dict[tuple[str, str, str], float]:
    """The samples of the stages, by name, stage and bound."""
    families = text_string_to_metric_families(observer.page().decode())
    return {
        (sample.name, sample.labels["stage"], sample.labels.get("le", "")): sample.value
        for family in families
        if family.name == "tensorgate_stage_seconds"
        for sample in family.samples
    }


def test_stages_follow_one_another() -> None:
    """Each stage lasts from the end of the one before; a wait for a batch is cut off from the run."""
    trace = went_through((RECEIVE, 1), (QUEUE, 2), (DECODE, 4), (RUN, 10), (ENCODE, 11), waited=2.5)
    told = [(stage, round(end - start, 6)) for stage, start, end in trace.stages()]
    assert told == [(RECEIVE, 1), (QUEUE, 1), (DECODE, 2), (BATCH, 2.5), (RUN, 3.5), (ENCODE, 1)]


def test_a_wait_is_never_longer_than_the_run() -> None:
    """What is noted beyond the run's own time does not make its stages overlap."""
    told = [(stage, round(end - start, 6)) for stage, start, end in went_through((RUN, 2), waited=5).stages()]
    assert told == [(BATCH, 2), (RUN, 0)]


def test_stages_are_counted() -> None:
    """The metrics page has a histogram for each stage that happened, and none for others."""
    observer = Observer()
    for _ in range(3):
        observer.record(went_through((RECEIVE, 2e-5), (QUEUE, 5e-5), (DECODE, 5e-5), (RUN, 1.05)))
    page = samples(observer)
    assert page["tensorgate_stage_seconds_count", "run", ""] == 3
    assert round(page["tensorgate_stage_seconds_sum", "run", ""], 3) == 3.15
    assert page["tensorgate_stage_seconds_bucket", "run", "3"] == 3
    assert page["tensorgate_stage_seconds_bucket", "receive", "1e-05"] == 0
    assert page["tensorgate_stage_seconds_bucket", "receive", "3e-05"] == 3
    assert not any(stage in ("batch", "encode") for _, stage, _ in page)


def test_a_request_without_stages_is_not_counted() -> None:
    """A call that no stage was reached with makes no series."""
    observer = Observer()
    observer.record(went_through())
    assert samples(observer) == {}


def test_server_timing() -> None:
    """The header names the stages and the total, in milliseconds."""
    told = server_timing(went_through((RECEIVE, 0.001), (QUEUE, 0.0015)))
    assert re.fullmatch(r"receive;dur=1\.000, queue;dur=0\.500, total;dur=\d+\.\d{3}", told)


def waits(seconds: float) -> None:
    """A request of this task has waited so long for its batch."""
    entry = Entry(InferenceRequest({}), 1, asyncio.get_running_loop().create_future())
    entry.since = 0.0
    entry.begin(seconds)


@on_loop
async def test_a_wait_is_noted_with_the_request_of_the_task() -> None:
    """Whoever runs a batch tells how long its requests waited; outside of a request that goes nowhere."""
    waits(1.0)
    trace = Trace("id-1")
    token = current.set(trace)
    waits(0.5)
    waits(0.25)
    current.reset(token)
    assert trace.waited == 0.75
