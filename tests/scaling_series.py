"""Services whose nodes follow a series of loads, for the tests of scaling."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.config import ScalingConfig, convert
from gateway.control.scaling import Decision, History, decide

LOAD = {"metric": "cpu_percent", "value": 100}


def config(**changes: Any) -> ScalingConfig:
    """One to eight nodes for 100 % of load each; up every 10 s, at most 2 nodes and 100 % a time; down at most 2."""
    table = {
        "min": 1,
        "max": 8,
        "expectations": (LOAD,),
        "up": {"interval_seconds": 10, "max_nodes": 2, "max_percent": 100},
        "down": {"max_nodes": 2},
    }
    return convert(table | changes, ScalingConfig, "scaling")


def series(*loads: tuple[float, float]) -> Iterator[tuple[float, Mapping[str, float]]]:
    """Seconds and the load at that moment."""
    return ((at, {"cpu_percent": load}) for at, load in loads)


def after(
    rule: ScalingConfig, nodes: int, looks: Iterable[tuple[float, Mapping[str, float]]]
) -> tuple[History, Decision]:
    """What is remembered, and was decided last, where the nodes stay as they are."""
    history, decision = History(), None
    for at, actual in looks:
        decision, history = decide(rule, nodes, actual, at, history)
    assert decision is not None
    return history, decision
