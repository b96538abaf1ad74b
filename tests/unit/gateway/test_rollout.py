"""The rule for a canary's weight, and who follows it."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from scene import on_loop

from gateway.analyst import Analyst
from gateway.canary import CANARY, STABLE, Variant
from gateway.config import AnalysisConfig, CanaryConfig, ServiceConfig
from gateway.rollout import Action, Decision, Window, carried_out, decide
from gateway.trace import Trace
from gateway.variants import Tallies, Tally, Variants

ANALYSIS = AnalysisConfig(steps=(10, 50), window_seconds=60, samples=100, error_percent=1.0)


def tally(requests: int, failures: int = 0, millis: float = 10.0) -> Tally:
    """So many answers that took so long."""
    variants = Variants()
    _count(variants, CANARY, requests, failures, millis)
    return variants.tallies().get(("digits", "canary"), Tally())


def _count(variants: Variants, variant: Variant, requests: int, failures: int = 0, millis: float = 10.0) -> None:
    for number in range(requests):
        trace = Trace("r")
        trace.status, trace.service, trace.variant = 200, "digits", variant
        trace.failed, trace.seconds = number < failures, millis / 1e3
        variants.record(trace)


def window(canary: Tally, stable: Tally | None = None, seconds: float = 60.0) -> Window:
    return Window(seconds, stable or tally(1000), canary)


@pytest.mark.parametrize(
    ("analysis", "weight", "seen", "action", "after"),
    [
        ({}, 0, window(tally(0), seconds=0), "start", 10),
        ({}, 10, window(tally(100), seconds=59), "wait", 10),
        ({}, 10, window(tally(99), seconds=600), "wait", 10),
        ({}, 10, window(tally(100)), "advance", 50),
        ({}, 30, window(tally(100)), "advance", 50),
        ({}, 50, window(tally(100)), "hold", 50),
        ({}, 100, window(tally(100)), "hold", 100),
        ({"take_over": True}, 50, window(tally(100)), "take_over", 50),
        ({}, 10, window(tally(100, 1)), "advance", 50),
        ({}, 10, window(tally(100, 2)), "roll_back", 0),
        ({}, 50, window(tally(100, 2)), "roll_back", 0),
        ({}, 10, window(tally(100, 5), tally(1000, 40)), "advance", 50),
        ({}, 10, window(tally(100, 6), tally(1000, 40)), "roll_back", 0),
        ({"error_percent": 0.0}, 10, window(tally(100, 1)), "roll_back", 0),
        ({"error_percent": 100.0}, 10, window(tally(100, 100)), "advance", 50),
        ({"latency_ms": 50.0}, 10, window(tally(100, millis=30)), "advance", 50),
        ({"latency_ms": 50.0}, 10, window(tally(100, millis=90)), "roll_back", 0),
        ({"latency_ratio": 2.0}, 10, window(tally(100, millis=15), tally(1000, millis=10)), "advance", 50),
        ({"latency_ratio": 2.0}, 10, window(tally(100, millis=30), tally(1000, millis=10)), "roll_back", 0),
        ({"latency_ratio": 2.0}, 10, window(tally(100, millis=30), Tally()), "advance", 50),
        ({}, 10, window(tally(2, 2), seconds=1), "roll_back", 0),
        ({}, 10, window(tally(2, 1), seconds=1), "wait", 10),
        ({"bad_windows": 2}, 10, window(tally(100, 50)), "bear", 10),
    ],
)
def test_what_follows_from_a_window(
    analysis: dict[str, Any], weight: int, seen: Window, action: Action, after: int
) -> None:
    """Complete windows are judged; failures that no complete one could bear are not waited for."""
    decision = decide(replace(ANALYSIS, **analysis), weight, 0, seen)
    assert (decision.action, decision.weight) == (action, after)


def test_bad_windows_are_borne_in_a_row_only() -> None:
    """The last that is borne rolls back, and says what was wrong."""
    analysis = replace(ANALYSIS, bad_windows=3)
    bad = window(tally(100, 50))
    assert [decide(analysis, 10, before, bad).action for before in range(3)] == ["bear", "bear", "roll_back"]
    assert "50 % of its answers failed, more than 1 %" in decide(analysis, 10, 2, bad).reason


def test_a_decision_tells_its_inputs() -> None:
    """So that whoever reads the event can check it."""
    inputs = decide(ANALYSIS, 10, 0, window(tally(100, 2), tally(500))).inputs
    assert (inputs["canary_requests"], inputs["stable_requests"]) == (100, 500)
    assert (inputs["canary_failure_percent"], inputs["stable_failure_percent"]) == (2.0, 0.0)
    assert inputs["canary_latency_ms"] == pytest.approx(10, rel=0.16)


def test_what_becomes_of_the_service() -> None:
    """A weight, a halt with its reason, or another stable deployment; everything else stays."""
    canary = CanaryConfig(model="new", model_version=3, version="2.0.0", weight=10, analysis=ANALYSIS)
    service = ServiceConfig(model="old", owner="ada", canary=canary)
    advanced = carried_out(service, Decision("advance", 50, "good"))
    assert advanced == replace(service, canary=replace(canary, weight=50))
    halted = carried_out(service, Decision("roll_back", 0, "bad"))
    assert halted == replace(service, canary=replace(canary, weight=0, halted="bad"))
    over = carried_out(service, Decision("take_over", 50, "good"))
    assert over == ServiceConfig(model="new", model_version=3, version="2.0.0", owner="ada")
    assert carried_out(service, Decision("bear", 10, "bad")) == service
    same_model = replace(service, canary=CanaryConfig(model_version=2))
    assert carried_out(same_model, Decision("take_over", 0, "")).model == "old"


class Ward:
    """A service whose canary is watched, on a clock that is set by hand."""

    def __init__(self, **analysis: Any) -> None:
        self.now = 0.0
        self.variants = Variants()
        canary = CanaryConfig(model="new", analysis=replace(ANALYSIS, **analysis))
        self.services = {"digits": ServiceConfig(model="old", canary=canary), "plain": ServiceConfig()}
        self.told: list[str] = []
        self.analyst = Analyst(lambda: self.services, self._tallies, self._publish, lambda: self.now)

    async def _publish(self, name: str, decision: Decision) -> None:
        self.told.append(f"{decision.action} {decision.weight}")
        self.services[name] = carried_out(self.services[name], decision)

    async def _tallies(self) -> Tallies:
        return self.variants.tallies()

    async def passes(self, seconds: float, requests: int, failures: int = 0) -> None:
        """Both variants answer, then somebody looks."""
        _count(self.variants, CANARY, requests, failures)
        _count(self.variants, STABLE, 1000)
        self.now += seconds
        await self.analyst.look()


@on_loop
async def test_a_good_canary_takes_over_by_itself() -> None:
    """Step by step, a window each; what another weight has counted belongs to no window of this one."""
    ward = Ward(take_over=True)
    await ward.passes(0, 0)
    await ward.passes(1, 500, 500)
    await ward.passes(30, 100)
    assert ward.told == ["start 10"]
    await ward.passes(30, 0)
    assert ward.told == ["start 10", "advance 50"]
    await ward.passes(1, 0)
    await ward.passes(60, 100)
    assert ward.told == ["start 10", "advance 50", "take_over 50"]
    assert ward.services["digits"] == ServiceConfig(model="new")
    await ward.passes(60, 100)
    assert len(ward.told) == 3


@on_loop
async def test_a_bad_canary_is_rolled_back_and_stays_so() -> None:
    """Until somebody says that it may begin again."""
    ward = Ward()
    await ward.passes(0, 0)
    await ward.passes(1, 0)
    await ward.passes(1, 5, 5)
    await ward.passes(60, 100)
    assert ward.told == ["start 10", "roll_back 0"]
    halted = ward.services["digits"].canary
    assert halted is not None
    assert halted.halted == "5 of 5 answers failed, too many for a window of 100 already"
    ward.services["digits"] = replace(ward.services["digits"], canary=replace(halted, halted=""))
    await ward.passes(1, 0)
    assert ward.told[-1] == "start 10"


@on_loop
async def test_somebody_elses_change_begins_a_new_window() -> None:
    """Also of bad windows."""
    ward = Ward(bad_windows=2)
    await ward.passes(0, 0)
    await ward.passes(1, 0)
    await ward.passes(60, 100, 50)
    canary = ward.services["digits"].canary
    assert canary is not None
    ward.services["digits"] = replace(ward.services["digits"], canary=replace(canary, weight=20))
    await ward.passes(1, 0)
    await ward.passes(60, 100, 50)
    assert ward.told == ["start 10", "bear 10", "bear 20"]
    await ward.passes(60, 100, 50)
    assert ward.told[-1] == "roll_back 0"


@on_loop
async def test_a_fault_of_one_look_ends_no_watching() -> None:
    """It is logged, and the next look comes."""
    ward = Ward()
    looked = asyncio.Event()

    def broken() -> dict[str, ServiceConfig]:
        if not looked.is_set():
            looked.set()
            raise RuntimeError("the store is away")
        return ward.services

    ward.analyst._services = broken
    published = asyncio.Event()

    async def publish(name: str, decision: Decision) -> None:
        await ward._publish(name, decision)
        published.set()

    ward.analyst._publish = publish
    task = asyncio.create_task(ward.analyst.run(0.001))
    await published.wait()
    task.cancel()
    assert ward.told == ["start 10"]
