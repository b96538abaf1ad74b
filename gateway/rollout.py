"""The rule by which a canary's weight follows how it does. Pure: counts and settings in, a decision out.

A window is good or bad. A good one leads to the next step, and after the last to the canary's taking over, if it may;
so many bad ones in a row, or errors enough to be sure of one, take its requests away.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.config import AnalysisConfig, CanaryConfig, ServiceConfig
from gateway.variants import Tally

Action = Literal["wait", "start", "advance", "hold", "bear", "roll_back", "take_over"]
"""`hold`: it does well at the last step. `bear`: a bad window, but not the last that is borne."""

CHANGES: frozenset[Action] = frozenset({"start", "advance", "roll_back", "take_over"})


class Window(Struct, frozen=True):
    """What was counted between two moments."""

    seconds: float
    stable: Tally
    canary: Tally


class Decision(Struct, frozen=True):
    """What is to be done, and what that was decided by."""

    action: Action
    weight: int
    """The canary's from now on."""
    reason: str
    inputs: Mapping[str, float] = {}


def decide(analysis: AnalysisConfig, weight: int, bad: int, window: Window) -> Decision:
    """What follows from a window at this weight, `bad` windows having gone right before it."""
    if not weight:
        return Decision("start", analysis.steps[0], f"the canary begins with {analysis.steps[0]} %")
    inputs = _inputs(analysis, window)
    complete = window.seconds >= analysis.window_seconds and window.canary.requests >= analysis.samples
    faults = _faults(analysis, inputs, window) if complete else _certain(analysis, window)
    if faults:
        reason = "; ".join(faults)
        if bad + 1 >= analysis.bad_windows:
            return Decision("roll_back", 0, reason, inputs)
        return Decision("bear", weight, f"bad window {bad + 1} of {analysis.bad_windows}: {reason}", inputs)
    if not complete:
        return Decision("wait", weight, "the window is not complete", inputs)
    step = next((step for step in analysis.steps if step > weight), None)
    if step is not None:
        return Decision("advance", step, f"{window.canary.requests} answers were good at {weight} %", inputs)
    if analysis.take_over:
        return Decision("take_over", weight, f"{window.canary.requests} answers were good at the last step", inputs)
    return Decision("hold", weight, "the canary does well at the last step", inputs)


def _inputs(analysis: AnalysisConfig, window: Window) -> dict[str, float]:
    return {
        "seconds": window.seconds,
        "canary_requests": window.canary.requests,
        "canary_failure_percent": window.canary.failure_percent,
        "canary_latency_ms": 1e3 * window.canary.percentile(analysis.percentile),
        "stable_requests": window.stable.requests,
        "stable_failure_percent": window.stable.failure_percent,
        "stable_latency_ms": 1e3 * window.stable.percentile(analysis.percentile),
    }


def _faults(analysis: AnalysisConfig, inputs: Mapping[str, float], window: Window) -> list[str]:
    """What is wrong with a complete window."""
    faults = []
    failures, bound = inputs["canary_failure_percent"], _most_failures(analysis, window)
    if failures > bound:
        faults.append(f"{failures:.3g} % of its answers failed, more than {bound:.3g} %")
    ours, theirs = inputs["canary_latency_ms"], inputs["stable_latency_ms"]
    name = f"its {analysis.percentile:g}th percentile is {ours:.3g} ms"
    if analysis.latency_ms and ours > analysis.latency_ms:
        faults.append(f"{name}, more than {analysis.latency_ms:g} ms")
    ratio = analysis.latency_ratio
    if ratio and window.stable.requests and ours > ratio * theirs:
        faults.append(f"{name}, more than {ratio:g} times the stable deployment's {theirs:.3g} ms")
    return faults


def _certain(analysis: AnalysisConfig, window: Window) -> list[str]:
    """What is wrong with a window for certain, however it goes on: so a broken canary need not be waited for."""
    failures = window.canary.failures
    least = max(analysis.samples, window.canary.requests)
    if failures > least * _most_failures(analysis, window) / 100:
        return [f"{failures} of {window.canary.requests} answers failed, too many for a window of {least} already"]
    return []


def _most_failures(analysis: AnalysisConfig, window: Window) -> float:
    return analysis.error_percent + window.stable.failure_percent


# What becomes of the service...


def carried_out(service: ServiceConfig, decision: Decision) -> ServiceConfig:
    """The service after the decision."""
    canary = service.canary
    if canary is None or decision.action not in CHANGES:
        return service
    if decision.action == "take_over":
        return taken_over(service, canary)
    halted = decision.reason if decision.action == "roll_back" else ""
    return replace(service, canary=replace(canary, weight=decision.weight, halted=halted))


def taken_over(service: ServiceConfig, canary: CanaryConfig) -> ServiceConfig:
    """The service with the canary in the stable deployment's place."""
    return replace(
        service,
        model=canary.model or service.model,
        model_version=canary.model_version,
        version=canary.version,
        canary=None,
    )
