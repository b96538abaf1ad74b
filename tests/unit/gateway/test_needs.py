"""What services ask of their models, and how models are loaded for it."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config import ConfigError, ModelConfig, ServiceConfig, convert
from gateway.needs import Need, asked_of, needs
from gateway.repository import ModelFolder, VersionFolder


def services(**tables: dict[str, Any]) -> dict[str, ServiceConfig]:
    return {name: convert(table, ServiceConfig, name) for name, table in tables.items()}


def folder(**config: Any) -> ModelFolder:
    version = VersionFolder(1, Path("1"), "f1")
    return ModelFolder("m", Path(), Path(), convert(config, ModelConfig, "m"), "", {1: version})


@pytest.mark.parametrize(
    ("tables", "nodes"),
    [
        ({"a": {"model": "m"}}, 1),
        ({"a": {"model": "m", "nodes": 3}}, 3),
        ({"a": {"model": "m", "nodes": 3}, "b": {"model": "m", "nodes": 2}}, 5),
        ({"a": {"model": "m"}, "b": {"model": "m"}, "c": {"model": "m"}}, 1),
        ({"a": {"model": "m"}, "b": {"model": "m"}, "c": {"model": "m", "nodes": 2}}, 4),
        ({"a": {"model": "m"}, "b": {"model": "m", "scaling": {"min": 1}}}, 2),
        ({"a": {"model": "m", "nodes": 3}, "b": {"model": "m", "nodes": 2, "state": "stopped"}}, 3),
        ({"a": {"model": "m", "scaling": {"min": 2, "max": 5}}}, 2),
        ({"a": {"model": "x", "canary": {"model": "m", "nodes": 4}}}, 4),
        ({"a": {"model": "x", "nodes": 9, "canary": {"model": "m", "scaling": {"min": 2, "max": 5}}}}, 2),
    ],
)
def test_nodes_of_all_running_services_add_up(tables: dict[str, Any], nodes: int) -> None:
    """Services of one model share its nodes, a canary's among them."""
    assert nodes == needs(services(**tables), {})["m"].nodes


def test_load_decides_for_elastic_services() -> None:
    """What was decided counts, not the minimum."""
    found = needs(services(a={"model": "m", "scaling": {"min": 1, "max": 8}}), {"a": 6})["m"]
    assert (found.nodes, found.scales) == (6, True)


def test_a_canary_s_load_decides_for_it_alone() -> None:
    """What was decided for the canary is not its service's, which may be elastic as well."""
    rule = {"min": 1, "max": 8}
    both = services(a={"model": "m", "scaling": rule, "canary": {"model": "n", "scaling": rule}})
    found = needs(both, {"a": 2, "a/canary": 5})
    assert [(found[model].nodes, found[model].scales) for model in "mn"] == [(2, True), (5, True)]


@pytest.mark.parametrize("canary", [{}, {"model": "a"}])
def test_only_a_canary_of_another_model_scales(canary: dict[str, Any]) -> None:
    """One of the service's own model has no nodes that could be more or fewer."""
    with pytest.raises(ConfigError, match=r"services\.a\.canary\.scaling: only a canary of another model"):
        needs(services(a={"canary": {**canary, "scaling": {}}}), {})


def test_services_that_ask_for_different_things_are_refused() -> None:
    """One model cannot have two environments."""
    both = services(a={"model": "m", "environment": {"A": "1"}}, b={"model": "m", "environment": {"A": "2"}})
    with pytest.raises(ConfigError, match=r"services\.b: it shares the model 'm' with services\.a"):
        needs(both, {})
    one = services(a={"model": "m", "environment": {"A": "1"}}, b={"model": "m"})
    assert needs(one, {})["m"].environment == {"A": "1"}


def test_a_model_of_which_nothing_is_asked_stays_as_it_is() -> None:
    """One node and no settings are what every model has."""
    assert asked_of(folder(), Need()) == folder()


@pytest.mark.parametrize(
    ("config", "need", "placement", "tables"),
    [
        ({}, {"nodes": 3}, "pool", {"pool": {"replicas": 3}}),
        ({}, {"scales": True}, "pool", {"pool": {"replicas": 1}}),
        ({}, {"nodes": 2, "node": {"threads": 4, "memory_mib": 512}}, "pool",
         {"ort": {"threads": 4}, "pool": {"replicas": 2, "memory_mb": 512}}),
        ({"backend": "pyclass", "plugins": {"pyclass": {"entry": "a:B", "environment": {"X": "0", "Y": "1"}}}},
         {"nodes": 2, "environment": {"X": "2"}}, "auto",
         {"pyclass": {"entry": "a:B", "environment": {"X": "2", "Y": "1"}, "replicas": 2}}),
        ({"backend": "custom", "plugins": {"custom": {"command": ["a"]}}},
         {"environment": {"X": "2"}, "parameters": {"p": 1}}, "auto",
         {"custom": {"command": ["a"], "environment": {"X": "2"}, "parameters": {"p": 1}}}),
    ],
)  # fmt: skip
def test_models_are_loaded_as_asked(
    config: dict[str, Any], need: dict[str, Any], placement: str, tables: dict[str, Any]
) -> None:
    """Nodes are workers, a class's own or a pool around any other; settings lie over those of model.toml."""
    asked = asked_of(folder(**config), convert(need, Need, "need"))
    assert (placement, tables) == (asked.config.placement, asked.config.plugins)
    assert asked.versions[1].fingerprint != "f1"


def test_more_nodes_are_no_reason_to_load_anew() -> None:
    """Nodes come and go; only a model that had one, and no pool, is loaded again for the second."""
    two, three = (asked_of(folder(), Need(nodes=count)).versions[1].fingerprint for count in (2, 3))
    assert two == three
