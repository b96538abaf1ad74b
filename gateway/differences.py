"""How far two models' answers to the same requests lie apart."""

from collections.abc import Container, Iterator, Mapping

import numpy as np
from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.types import Tensor

MOST_OUTPUTS = 32
"""Told of by name, for one service."""


class OutputReport(Struct):
    """One output of a service's answers."""

    compared: int = 0
    different: int = 0
    """Answers whose shapes differ, or with any value beyond the tolerance."""
    largest: float = 0.0
    """The largest absolute difference of two numbers."""


class ShadowReport(Struct):
    """What the copies of one service's requests have shown."""

    same: int = 0
    different: int = 0
    failed: int = 0
    """The canary answered with an error, or not in time."""
    skipped: int = 0
    """No copy was made, since too many ran already."""
    last_failure: str = ""
    outputs: dict[str, OutputReport] = {}


def added(one: ShadowReport, other: ShadowReport) -> ShadowReport:
    """Both together: two processes' reports of one service."""
    outputs = {}
    for name in one.outputs | other.outputs:
        first, second = one.outputs.get(name, OutputReport()), other.outputs.get(name, OutputReport())
        outputs[name] = OutputReport(
            first.compared + second.compared,
            first.different + second.different,
            max(first.largest, second.largest),
        )
    return ShadowReport(
        one.same + other.same,
        one.different + other.different,
        one.failed + other.failed,
        one.skipped + other.skipped,
        one.last_failure or other.last_failure,
        outputs,
    )


class ShadowReports:
    """The reports of every service with a shadow."""

    def __init__(self) -> None:
        self._reports: dict[str, ShadowReport] = {}

    def of(self, service: str) -> ShadowReport:
        """The service's report, to be added to."""
        return self._reports.setdefault(service, ShadowReport())

    def reports(self) -> Mapping[str, ShadowReport]:
        """Service to its report."""
        return self._reports

    def keep(self, services: Container[str]) -> None:
        """Forget those of other services."""
        self._reports = {name: report for name, report in self._reports.items() if name in services}

    def add(self, service: str, differences: Mapping[str, tuple[bool, float]]) -> None:
        """Count a pair of answers: output to whether it is the same, and how far its numbers lie apart."""
        report = self.of(service)
        if all(same for same, _ in differences.values()):
            report.same += 1
        else:
            report.different += 1
        for name, (same, largest) in differences.items():
            if name not in report.outputs and len(report.outputs) >= MOST_OUTPUTS:
                continue
            output = report.outputs.setdefault(name, OutputReport())
            output.compared += 1
            output.different += not same
            output.largest = max(output.largest, largest)

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        requests = CounterMetricFamily(
            "tensorgate_shadow_requests",
            "Requests copied to a canary, by what came of it",
            labels=["service", "result"],
        )
        largest = GaugeMetricFamily(
            "tensorgate_shadow_largest_difference",
            "The largest absolute difference between a canary's numbers and the stable deployment's",
            labels=["service", "output"],
        )
        for service, report in self._reports.items():
            for result in ("same", "different", "failed", "skipped"):
                requests.add_metric([service, result], getattr(report, result))
            for name, output in report.outputs.items():
                largest.add_metric([service, name], output.largest)
        yield from (requests, largest)


def compare(
    stable: Mapping[str, Tensor], canary: Mapping[str, Tensor], tolerance: float
) -> dict[str, tuple[bool, float]]:
    """By output, whether both say the same within the tolerance, and how far their numbers lie apart.

    Outputs are compared by name; where both answers have just one, those are.
    """
    if len(stable) == len(canary) == 1:
        canary = dict.fromkeys(stable, *canary.values())
    return {name: _difference(tensor, canary.get(name), tolerance) for name, tensor in stable.items()}


def _difference(stable: Tensor, canary: Tensor | None, tolerance: float) -> tuple[bool, float]:
    if canary is None or stable.shape != canary.shape:
        return False, 0.0
    if not _is_number(stable) or not _is_number(canary):
        return bool(np.array_equal(stable, canary)), 0.0
    one, two = stable.astype(np.float64), canary.astype(np.float64)
    equal = (one == two) | (np.isnan(one) & np.isnan(two))
    with np.errstate(all="ignore"):
        apart = np.where(equal, 0.0, np.abs(one - two))
        near = np.isfinite(apart) & (apart <= tolerance + tolerance * np.abs(one))
    return bool(np.all(equal | near)), float(np.fmax.reduce(apart, axis=None, initial=0.0))


def _is_number(tensor: Tensor) -> bool:
    return tensor.dtype.kind in "biuf"
