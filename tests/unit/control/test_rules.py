"""The control plane's pure rules: who may do what, what a plan shows, how services change, how lists are sorted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.config import CanaryConfig, KeyConfig, NodeConfig, ServiceConfig
from gateway.control import changes
from gateway.control.accounts import User
from gateway.control.errors import Conflict, Invalid, NotAllowed, NotFound
from gateway.control.permissions import MATRIX, Action, may, require
from gateway.control.plans import plan, told
from gateway.control.views import expiry_of, listed, shown, state_of

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
KEY = KeyConfig("ci", f"sha256:{'0' * 64}")

PLATFORM = {
    "view": ("yes", "yes", "no"),
    "use": ("yes", "yes", "no"),
    "operate": ("yes", "no", "no"),
    "canary": ("yes", "no", "no"),
    "duration": ("yes", "no", "no"),
    "delete": ("yes", "no", "no"),
}
"""The manual's table: read-write, read-only, none."""


@pytest.mark.parametrize("column", range(3))
@pytest.mark.parametrize("action", PLATFORM)
def test_sharing_is_the_manuals(action: Action, column: int) -> None:
    """Cell by cell, for another member of the same project."""
    service = ServiceConfig(owner="ada", project="vision", sharing=("rw", "ro", "none")[column])  # type: ignore[arg-type]
    bob = User("bob", "member", "vision")
    assert may(bob, action, service, sharing=True) == (PLATFORM[action][column] == "yes")
    assert not may(bob, action, service, sharing=False)
    assert not may(User("eve", "member", "other"), action, service, sharing=True)
    assert not may(User("eve", "member", ""), action, ServiceConfig(owner="ada", sharing="rw"), sharing=True)


def test_the_matrix_has_every_action() -> None:
    """Nothing can be done that the table does not know."""
    assert PLATFORM.keys() == MATRIX.keys()


@pytest.mark.parametrize("action", PLATFORM)
def test_owners_and_administrators_may_do_everything(action: Action) -> None:
    """Whatever is shared."""
    service = ServiceConfig(owner="ada", project="vision")
    assert may(User("ada", "member", "vision"), action, service, sharing=False)
    assert may(User("root", "admin"), action, service, sharing=False)


def test_what_may_not_be_seen_is_not_there() -> None:
    """Who may look is told that he may not; who may not look is told nothing."""
    service = ServiceConfig(owner="ada", project="vision", sharing="ro")
    with pytest.raises(NotAllowed, match="but not delete it"):
        require(User("bob", "member", "vision"), "delete", "s", service, sharing=True)
    with pytest.raises(NotFound, match="there is no service 's'"):
        require(User("eve", "member", "other"), "delete", "s", service, sharing=True)


# Plans...


def test_a_plan_shows_each_field() -> None:
    """Created, edited and deleted services, by the path of each field; what is secret is hidden."""
    before = {"a": ServiceConfig(model="m"), "b": ServiceConfig(), "c": ServiceConfig()}
    after = {
        "a": ServiceConfig(model="m", canary=CanaryConfig(weight=30), keys=(KEY,)),
        "c": ServiceConfig(),
        "d": ServiceConfig(type="seldon"),
    }
    found = plan(before, after)
    assert [(one.kind, one.service) for one in found] == [("edit", "a"), ("delete", "b"), ("create", "d")]
    fields = {one.field: (one.before, one.after) for one in found[0].fields}
    assert fields["canary.weight"] == (None, 30)
    assert fields["keys"] == ("hidden", "hidden")
    assert told(found[2]) == "create d"
    assert plan(after, after) == ()


# Changes...


def test_fields_are_edited_and_reset() -> None:
    """Other values for some; null is the default; what has a call of its own is refused, as is what cannot be."""
    service = ServiceConfig(model="m", duration="8h", aliases=("x",))
    edited = changes.edited(service, {"model": "n", "aliases": None})
    assert (edited.model, edited.aliases, edited.duration) == ("n", (), "8h")
    with pytest.raises(Invalid) as refused:
        changes.edited(service, {"state": "stopped"})
    assert refused.value.field == "state"
    with pytest.raises(Invalid) as refused:
        changes.edited(service, {"limits": {"concurrency": -1}})
    assert refused.value.field == "limits.concurrency"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"parameters": {"a": 1}}, "parameters are for services of type custom only"),
        ({"type": "custom", "parameters": {"a": float("inf")}}, "expected numbers that JSON has"),
        ({"canary": {"analysis": {"latency_ms": float("inf")}}}, "canary.analysis.latency_ms"),
        ({"nodes_allowed": ["n1"], "node": {"driver": "1.2"}}, "either node.driver or nodes_allowed"),
        ({"version": "1.0"}, "version"),
        ({"duration": "9999999d"}, "duration"),
        ({"duration": "99999999h"}, "duration"),
        ({"type": "tf"}, "Invalid enum value 'tf'"),
    ],
)
def test_the_manuals_rules_for_fields(table: dict[str, Any], text: str) -> None:
    """What the manual forbids is refused with the field or the reason."""
    with pytest.raises(Invalid) as refused:
        changes.described(table)
    assert text in f"{refused.value.field}: {refused.value}"


@pytest.mark.parametrize("duration", ["999999999s", "999999999m", "9999999h", "999999d"])
def test_the_longest_durations_end_on_a_date(duration: str) -> None:
    """There are dates for the end of whatever duration is taken."""
    ends = changes.with_expiry(changes.described({"duration": duration}), NOW.replace(year=2200)).expires_at
    assert ends is not None
    assert ends.year < 10_000


def test_starting_chooses_anew() -> None:
    """Node spec, nodes and duration are those given, else as before; the expiry counts from the start."""
    stopped = ServiceConfig(state="stopped", reason="r", duration="8h", nodes=2)
    started = changes.started(stopped, NOW, duration="1h", nodes=3, node=NodeConfig(threads=4))
    assert (started.state, started.reason, started.nodes, started.node.threads) == ("running", "", 3, 4)
    assert started.expires_at == NOW + timedelta(hours=1)
    assert changes.started(stopped, NOW).expires_at == NOW + timedelta(hours=8)
    with pytest.raises(Conflict, match="only a service that is stopped, expired or failed"):
        changes.started(started, NOW)


def test_stopping_ends_the_expiry() -> None:
    """A stopped service has none, and cannot be stopped again."""
    stopped = changes.stopped(ServiceConfig(expires_at=NOW), "for maintenance")
    assert (stopped.state, stopped.reason, stopped.expires_at) == ("stopped", "for maintenance", None)
    with pytest.raises(Conflict, match="it is stopped already"):
        changes.stopped(stopped)


def test_duration_counts_from_the_start() -> None:
    """Longer or shorter, but not shorter than it has run."""
    service = changes.with_expiry(ServiceConfig(duration="8h"), NOW)
    later = NOW + timedelta(hours=2)
    assert changes.lasting(service, "3h", later).expires_at == NOW + timedelta(hours=3)
    assert changes.lasting(service, "", later).expires_at is None
    with pytest.raises(Invalid, match="has run for longer than that"):
        changes.lasting(service, "1h", later)
    with pytest.raises(Invalid):
        changes.lasting(service, "soon", later)


def test_a_canary_takes_over() -> None:
    """Its model becomes the stable one, or its version of the same model."""
    service = ServiceConfig(model="old", canary=CanaryConfig(model="new", model_version=3, version="2.0.0", weight=30))
    after = changes.taken_over(service)
    assert (after.model, after.model_version, after.version, after.canary) == ("new", 3, "2.0.0", None)
    assert changes.weighted(service, 70).canary.weight == 70  # type: ignore[union-attr]
    assert changes.without_canary(service).canary is None
    for act in (changes.taken_over, changes.without_canary):
        with pytest.raises(Conflict, match="has no canary"):
            act(after)


@pytest.mark.parametrize("weight", [-1, 101, 1.5, "30", True, None])
def test_weights_are_percentages(weight: Any) -> None:
    """Whole numbers from 0 to 100, and nothing like them."""
    with pytest.raises(Invalid, match="expected a whole number from 0 to 100"):
        changes.weighted(ServiceConfig(canary=CanaryConfig()), weight)


def test_keys_come_and_go() -> None:
    """Each id once."""
    service = changes.with_key(ServiceConfig(), KEY)
    with pytest.raises(Conflict, match="there is a key 'ci' already"):
        changes.with_key(service, KEY)
    assert changes.without_key(service, "ci").keys == ()
    with pytest.raises(Conflict, match="the service has no key 'x'; it has: ci"):
        changes.without_key(service, "x")


# Lists...


def test_lists_are_sorted_by_expiry() -> None:
    """Without an end, and not running, come last, whichever way it is sorted."""
    soon, late = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(hours=9)
    services = {
        "endless": ServiceConfig(),
        "late": ServiceConfig(expires_at=late),
        "over": ServiceConfig(expires_at=datetime.now(UTC) - timedelta(hours=1)),
        "soon": ServiceConfig(expires_at=soon),
        "stopped": ServiceConfig(state="stopped"),
    }
    root = User("root", "admin")

    def sorted_by(sort: str) -> list[str]:
        return [name for name, _ in listed(services, root, True, {"sort": sort})]

    assert sorted_by("expires") == ["soon", "late", "endless", "over", "stopped"]
    assert sorted_by("-expires") == ["late", "soon", "endless", "over", "stopped"]
    assert [expiry_of(services[name]) for name in ("endless", "over", "stopped")] == ["unlimited", "-", "-"]
    assert state_of(services["over"]) == "expired"
    with pytest.raises(Invalid, match="expected one of name"):
        sorted_by("colour")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"name": "IG"}, ["digits"]),
        ({"state": "stopped"}, ["flowers"]),
        ({"owner": "ada"}, ["digits"]),
        ({"model": "mnist"}, ["digits", "flowers"]),
        ({"node": "cuda"}, ["flowers"]),
        ({"name": "i", "owner": "bob"}, []),
    ],
)
def test_lists_are_searched(query: dict[str, str], names: list[str]) -> None:
    """By part of the name and of the models', by state, owner and node spec; all together."""
    services = {
        "digits": ServiceConfig(model="mnist", owner="ada"),
        "flowers": ServiceConfig(
            model="iris", state="stopped", canary=CanaryConfig(model="mnist-new"), node=NodeConfig(device="cuda")
        ),
    }
    assert names == [name for name, _ in listed(services, User("root", "admin"), True, query)]


def test_secrets_are_not_shown() -> None:
    """Neither codes nor hashes leave the control plane."""
    told = str(shown(ServiceConfig(app_codes=("s3cret",), keys=(KEY,))))
    assert "s3cret" not in told
    assert "0000" not in told
    assert "'id': 'ci'" in told
