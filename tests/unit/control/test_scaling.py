"""The rule that says how many nodes a service should have."""

import pytest
from scaling_series import LOAD, after, config, series

from gateway.config import ConfigError, ScalingConfig, convert
from gateway.control.scaling import History, decide, simulate


@pytest.mark.parametrize(
    ("nodes", "actual", "target", "rule"),
    [
        (3, {"cpu_percent": 180.0}, 5, "+2 nodes at a time"),
        (1, {"cpu_percent": 300.0}, 2, "+100 % at a time, +1"),
        (4, {"cpu_percent": 110.0}, 5, "5 wanted"),
        (7, {"cpu_percent": 900.0}, 8, "at most 8"),
        (3, {"cpu_percent": 100.0}, 3, "as many as wanted"),
        (0, {"cpu_percent": 5.0}, 1, "at least 1"),
        (9, {"cpu_percent": 500.0}, 8, "at most 8"),
        (2, {}, 2, "as many as wanted"),
        (2, {"cpu_percent": float("nan")}, 2, "as many as wanted"),
    ],
)
def test_one_look(nodes: int, actual: dict[str, float], target: int, rule: str) -> None:
    """ceil(nodes x actual / expected), then the smaller of the steps, then min and max; the rule names what bound."""
    decision, _ = decide(config(), nodes, actual, 0.0, History())
    assert (target, rule) == (decision.target, decision.rule)


def test_whole_numbers_stay_whole() -> None:
    """Floating point adds no node: 3 x 0.2 / 0.2 is 3."""
    exact = config(expectations=({"metric": "latency_ms", "value": 0.2},))
    decision, _ = decide(exact, 3, {"latency_ms": 0.2}, 0.0, History())
    assert decision.want == 3


def test_an_expectation_next_to_nothing_wants_a_number() -> None:
    """What overflows is a very large number of nodes, which the rule bounds, and not the end of all scaling."""
    tiny = config(expectations=({"metric": "concurrency", "value": 5e-324},))
    decision, _ = decide(tiny, 7, {"concurrency": 1e308}, 0.0, History())
    assert (decision.want, decision.target) == (10**9, 8)


def test_the_metric_that_wants_most_decides() -> None:
    """Of several expectations the largest number of nodes wins."""
    both = config(expectations=(LOAD, {"metric": "concurrency", "value": 4}))
    decision, _ = decide(both, 2, {"cpu_percent": 50.0, "concurrency": 6.0}, 0.0, History())
    assert [reading.want for reading in decision.readings] == [1, 3]
    assert decision.target == 3


def test_zero_nodes_wake_up() -> None:
    """From zero, any load at all wants one node; none wants none."""
    asleep = config(min=0)
    assert decide(asleep, 0, {"cpu_percent": 0.1}, 0.0, History())[0].target == 1
    assert decide(asleep, 0, {"cpu_percent": 0.0}, 0.0, History())[0].target == 0


def test_up_waits_for_its_interval() -> None:
    """Two steps up lie at least the interval apart, and no window holds them back."""
    targets = [decision.target for decision in simulate(config(), 1, series((0, 200), (5, 200), (10, 200)))]
    assert targets == [2, 2, 4]


def test_down_waits_for_a_full_window() -> None:
    """Nothing goes before every value of 300 s was below; then one step, and the window begins anew."""
    decisions = list(simulate(config(), 6, series(*((at, 10) for at in range(0, 700, 50)))))
    assert [(one.at, one.target) for one in decisions if one.changes] == [(300, 4), (650, 2)]
    assert decisions[1].rule == "the window of 300 s is not full"
    assert decisions[6].rule == "-2 nodes at a time"


def test_one_value_above_holds_the_whole_window() -> None:
    """A single peak within the window keeps the nodes, whatever the average."""
    times = ((at, 101 if at == 200 else 10) for at in range(0, 501, 50))
    decisions = list(simulate(config(max=4), 4, series(*times)))
    assert decisions[-1].target == 4
    assert decisions[-1].rule == "not every value of the last 300 s was below its expectation"


def test_never_below_what_any_moment_asked_for() -> None:
    """The window's largest wish bounds the way down."""
    times = ((at, 70 if at == 100 else 5) for at in range(0, 301, 50))
    decision = list(simulate(config(down={"max_nodes": 9}), 6, series(*times)))[-1]
    assert (decision.target, decision.rule) == (5, "5 wanted")


def test_a_missing_metric_never_leads_down() -> None:
    """Without one of its metrics a service keeps its nodes, and the gap counts against the window."""
    both = config(expectations=(LOAD, {"metric": "concurrency", "value": 4}))
    history, decision = after(both, 4, [(at, {"cpu_percent": 5.0}) for at in range(0, 400, 50)])
    assert (decision.target, decision.rule) == (4, "a metric is missing: no way down")
    later, _ = decide(both, 4, {"cpu_percent": 5.0, "concurrency": 0.1}, 400.0, history)
    assert later.target == 4


def test_a_gap_as_long_as_the_window_begins_it_anew() -> None:
    """Where nobody looked, nobody knows: one low value after an hour's silence takes no node away."""
    decisions = list(simulate(config(), 4, series((0, 10), (3600, 10), (3900, 10))))
    assert [decision.target for decision in decisions] == [4, 4, 2]


def test_down_waits_for_its_interval() -> None:
    """Steps down lie their own interval apart, even where the window is shorter."""
    quick = config(window_seconds=0, down={"interval_seconds": 100, "max_nodes": 1})
    decisions = list(simulate(quick, 5, series((0, 10), (50, 10), (100, 10))))
    assert [decision.target for decision in decisions] == [4, 4, 3]
    assert decisions[1].rule == "down at most every 100 s"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"min": 3, "max": 2}, "min is 3, which is more than max, 2"),
        ({"expectations": [{"metric": "joy", "value": 1}]}, "joy"),
        ({"expectations": []}, "expectations"),
        ({"expectations": [{"metric": "concurrency", "value": 0}]}, "expectations[0].value"),
        ({"up": {"max_nodes": -1}}, "up.max_nodes"),
    ],
)
def test_tables_that_make_no_sense(table: dict[str, object], reason: str) -> None:
    """A rule that could not be followed is refused, and the key is named."""
    with pytest.raises(ConfigError) as refused:
        convert(table, ScalingConfig, "demo.toml: services.x.scaling")
    assert reason in str(refused.value)
