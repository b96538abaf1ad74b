"""What is counted of each variant."""

import pytest

from gateway.canary import CANARY, STABLE, Variant
from gateway.trace import CLIENT_GONE, Trace
from gateway.variants import Tally, Variants


def finished(seconds: float, variant: Variant = CANARY, *, failed: bool = False, status: int = 200) -> Trace:
    """A request that took so long."""
    trace = Trace("r-1")
    trace.service, trace.variant, trace.seconds, trace.failed, trace.status = "digits", variant, seconds, failed, status
    return trace


def counted(*traces: Trace) -> Variants:
    """Those requests."""
    variants = Variants()
    for trace in traces:
        variants.record(trace)
    return variants


def test_each_variant_is_counted_for_itself() -> None:
    """Answers, failures and seconds."""
    variants = counted(finished(0.1), finished(0.3, failed=True), finished(0.2, STABLE))
    canary, stable = variants.tallies()[("digits", "canary")], variants.tallies()[("digits", "stable")]
    assert (canary.requests, canary.failures, canary.seconds) == (2, 1, pytest.approx(0.4))
    assert (stable.requests, stable.failures, stable.failure_percent) == (1, 0, 0.0)


def test_a_caller_who_left_counts_for_nobody() -> None:
    """Neither as good nor as bad."""
    assert counted(finished(9.0, status=CLIENT_GONE)).tallies() == {}


def test_a_failure_may_come_after_the_answer() -> None:
    """A deferred inference is answered at once; what it comes to is counted then."""
    variants = counted(finished(0.1))
    variants.fail("digits", "canary")
    variants.fail("unknown", "canary")
    assert variants.tallies()[("digits", "canary")].failures == 1


def test_percentiles_are_known_to_a_sixth() -> None:
    """Buckets of 16 % are fine enough to tell a slower variant."""
    tally = counted(*(finished(millis / 1000) for millis in range(1, 1001))).tallies()[("digits", "canary")]
    for percent in (50, 95, 99):
        assert tally.percentile(percent) == pytest.approx(percent / 100, rel=0.16)
    assert Tally().percentile(95) == 0.0


def test_tallies_add_and_subtract() -> None:
    """A window is the difference of two, a gateway of many processes their sum."""
    one = counted(finished(0.1), finished(0.2)).tallies()[("digits", "canary")]
    two = counted(finished(0.1), finished(0.2), finished(5.0, failed=True)).tallies()[("digits", "canary")]
    window = two.since(one)
    assert (window.requests, window.failures, window.failure_percent) == (1, 1, 100.0)
    assert window.percentile(50) == pytest.approx(5.0, rel=0.16)
    assert one.plus(window).buckets == two.buckets


def test_other_services_are_forgotten() -> None:
    """What has no canary any more takes no memory."""
    variants = counted(finished(0.1))
    variants.miss("digits")
    variants.keep({"other"})
    assert variants.tallies() == {}
    assert "digits" not in str([metric.samples for metric in variants.collect()])
