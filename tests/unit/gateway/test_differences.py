"""How far two answers lie apart."""

import numpy as np
import pytest

from gateway.differences import MOST_OUTPUTS, ShadowReports, compare
from gateway.types import Tensor

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("stable", "canary", "same", "largest"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), True, 0.0),
        (np.float32([1, 2]), np.float32([1, 2.5]), False, 0.5),
        (np.float32([1, 1000]), np.float64([1, 1000.05]), True, 0.05),
        (np.int64([2**40]), np.int64([2**40 + 3]), True, 3.0),
        (np.array([True]), np.array([False]), False, 1.0),
        (np.float32([NAN, INF, -INF]), np.float32([NAN, INF, -INF]), True, 0.0),
        (np.float32([NAN, 1]), np.float32([0, 1]), False, 0.0),
        (np.float32([INF]), np.float32([0]), False, INF),
        (np.float32([1, 2]), np.float32([1, 2, 3]), False, 0.0),
        (np.array(["a"], object), np.array(["a"], object), True, 0.0),
        (np.array(["a"], object), np.array(["b"], object), False, 0.0),
        (np.array(["1"], object), np.float32([1]), False, 0.0),
        (np.zeros((0, 3)), np.zeros((0, 3)), True, 0.0),
    ],
)
def test_tensors_are_compared(stable: Tensor, canary: Tensor, same: bool, largest: float) -> None:
    """Numbers within the tolerance are the same, whatever their dtype; everything else must be equal."""
    found = compare({"y": stable, "z": stable}, {"y": canary, "z": stable}, 1e-4)
    assert found["z"] == (True, 0.0)
    assert found["y"] == (same, pytest.approx(largest))


def test_outputs_are_compared_by_name() -> None:
    """One that is missing differs; the only output of each needs no common name."""
    one, two = np.float32([1]), np.float32([2])
    assert compare({"a": one, "b": one}, {"a": one}, 0.0) == {"a": (True, 0.0), "b": (False, 0.0)}
    assert compare({"scores": one}, {"probabilities": two}, 0.0) == {"scores": (False, 1.0)}


def test_reports_say_what_came_of_the_copies() -> None:
    """By service and output, with the largest difference there was."""
    reports = ShadowReports()
    reports.add("digits", {"y": (True, 0.1)})
    reports.add("digits", {"y": (False, 0.7)})
    reports.add("digits", {"y": (True, 0.2)})
    report = reports.of("digits")
    output = report.outputs["y"]
    assert (report.same, report.different) == (2, 1)
    assert (output.compared, output.different, output.largest) == (3, 1, 0.7)


def test_reports_are_bounded() -> None:
    """A model with thousands of outputs makes no thousands of metrics."""
    reports = ShadowReports()
    reports.add("digits", {f"y{number}": (True, 0.0) for number in range(1000)})
    assert len(reports.of("digits").outputs) == MOST_OUTPUTS
    reports.keep(set())
    assert reports.reports() == {}
