"""Who answers a call: the stable deployment or the canary, and what services that do not run say instead."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from scene import Scene, on_loop

from gateway.clock import SteadyClock
from gateway.config import CanaryConfig, Config, ServiceConfig, ShadowConfig
from gateway.errors import InvalidHeader, NotReady, ServiceExpired, ServiceFailed, ServiceStopped
from gateway.plane import Choice, Memory, Plane, draw
from gateway.types import Call, Target

FREE = Target("digits")


class Time:
    """A machine's two clocks, moved by hand."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
        self.monotonic = 1000.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.monotonic)


def call(canary: str = "") -> Call:
    """A call with that wish."""
    return Call("POST", "/", headers=[(b"canary", canary.encode())] if canary else [])


def drawn(scene: Scene, before: Plane | None = None, **service: Any) -> Plane:
    """The snapshot with one service, digits, whose model is `old`."""
    config = Config(services={"digits": ServiceConfig(model="old", **service)})
    return draw(config, Path(), scene.models, {}, before)


def chosen(plane: Plane, target: Target = FREE, canary: str = "", **options: Any) -> Choice:
    """Who answers such a call of digits."""
    service = plane.directory.get("digits")
    assert service is not None
    return plane.choose(service, target, call(canary), **options)


async def load(scene: Scene, *names: str) -> None:
    """Models of those names, each with the versions 1 and 2."""
    for name in names:
        scene.put(f"{name}/model.toml", 'versions = "all"\nlabels = { stable = 1 }')
        for version in (1, 2):
            scene.put(f"{name}/{version}/model.onnx")
    await scene.models.start()
    await scene.settle()


def told(choice: Choice) -> tuple[str, int, str]:
    """Model, version and variant."""
    return choice.loaded.metadata.name, choice.loaded.version, choice.variant


@on_loop
async def test_the_weight_decides_for_who_names_nothing(scene: Scene) -> None:
    """Over 1,000 calls, the canary gets its percent exactly."""
    await load(scene, "old", "new")
    plane = drawn(scene, canary=CanaryConfig(model="new", weight=30))
    variants = [chosen(plane).variant for _ in range(1000)]
    assert variants.count("canary") == 300


@on_loop
async def test_pinned_calls_neither_go_astray_nor_count(scene: Scene) -> None:
    """A version, a label and the header decide for their call only, and take nobody's turn."""
    await load(scene, "old", "new")
    plane = drawn(scene, canary=CanaryConfig(model="new", weight=50))
    variants = []
    for _ in range(100):
        assert told(chosen(plane, Target("digits", version=1))) == ("old", 1, "stable")
        assert told(chosen(plane, Target("digits", label="stable"))) == ("old", 1, "stable")
        assert told(chosen(plane, canary="Never")) == ("old", 2, "stable")
        assert told(chosen(plane, canary="Always")) == ("new", 2, "canary")
        assert told(chosen(plane, Target("digits", version=1), "always")) == ("new", 2, "canary")
        assert chosen(plane, counts=False).variant == "stable"
        variants.append(chosen(plane).variant)
    assert variants == ["stable", "canary"] * 50


@on_loop
async def test_either_deployment_may_name_its_version(scene: Scene) -> None:
    """The canary may be an older or newer version of the same model."""
    await load(scene, "old")
    plane = drawn(scene, model_version=1, canary=CanaryConfig(model_version=2, weight=50))
    assert [told(chosen(plane)) for _ in range(2)] == [("old", 1, "stable"), ("old", 2, "canary")]
    assert told(chosen(plane, Target("digits", version=2))) == ("old", 2, "stable")


@on_loop
async def test_a_canary_that_is_not_there_fails_nobody(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The stable deployment answers in its place, and says so once; only who insists is refused, for now."""
    await load(scene, "old")
    plane = drawn(scene, canary=CanaryConfig(model="new", weight=100))
    choices = [chosen(plane) for _ in range(3)]
    assert [(one.variant, one.missed) for one in choices] == [("stable", True)] * 3
    assert [record.message for record in caplog.records if record.name == "tensorgate.canary"] == [
        "services.digits.canary: the stable deployment answers in its place: there is no model 'new'"
    ]
    with pytest.raises(NotReady, match="canary of the service digits does not answer: there is no model 'new'"):
        chosen(plane, canary="Always")


@on_loop
async def test_a_wish_that_nobody_knows_is_refused(scene: Scene) -> None:
    """It would be answered by anybody otherwise; a service without canary does not look at it."""
    await load(scene, "old", "new")
    with pytest.raises(InvalidHeader, match="Canary must be Always or Never, got 'perhaps'"):
        chosen(drawn(scene, canary=CanaryConfig(model="new")), canary="perhaps")
    assert told(chosen(drawn(scene), canary="Always")) == ("old", 2, "")


@on_loop
async def test_turns_outlive_the_snapshot(scene: Scene) -> None:
    """However often the services are applied anew, the canary's turn comes."""
    await load(scene, "old", "new")
    canary = CanaryConfig(model="new", weight=10)
    plane = drawn(scene, canary=canary)
    variants = []
    for _ in range(20):
        variants.append(chosen(plane).variant)
        plane = drawn(scene, plane, canary=canary)
    assert variants == (["stable"] * 9 + ["canary"]) * 2


@on_loop
async def test_what_is_deferred_keeps_its_variant(scene: Scene) -> None:
    """It takes one turn only; a canary that went meanwhile is stood in for."""
    await load(scene, "old", "new")
    plane = drawn(scene, canary=CanaryConfig(model="new", weight=0))
    service = plane.directory.get("digits")
    assert service is not None
    assert told(plane.choose_again(service, FREE, "canary")) == ("new", 2, "canary")
    scene.remove("new")
    await scene.settle()
    await scene.models.drained()
    assert told(plane.choose_again(service, FREE, "canary")) == ("old", 2, "stable")


@on_loop
async def test_copies_are_made_of_what_the_stable_one_answers(scene: Scene) -> None:
    """So many percent of it, and of nothing that the canary answered itself."""
    await load(scene, "old", "new")
    plane = drawn(scene, canary=CanaryConfig(model="new", shadow=ShadowConfig(percent=25)))
    service = plane.directory.get("digits")
    assert service is not None
    assert [plane.shadowed(service, "stable") is not None for _ in range(8)] == [False, False, False, True] * 2
    assert all(plane.shadowed(service, "canary") is None for _ in range(8))


@on_loop
async def test_the_models_of_a_service_have_no_other_name(scene: Scene) -> None:
    """A canary's model, as the stable one's, is reached through the service only."""
    await load(scene, "old", "new")
    plane = drawn(scene, canary=CanaryConfig(model="new"))
    assert [service.name for service in plane.directory] == ["digits"]
    assert plane.directory.get("new") is None


# Services that do not run...


@pytest.mark.parametrize(
    ("service", "error", "text"),
    [
        ({"state": "stopped", "reason": "by ada"}, ServiceStopped, "the service digits is stopped: by ada"),
        ({"state": "stopping"}, ServiceStopped, "the service digits is stopped"),
        ({"state": "expired"}, ServiceExpired, "the service digits has expired"),
        ({"state": "failed", "reason": "no model"}, ServiceFailed, "could not be started: no model"),
        ({"state": "starting"}, NotReady, "the service digits is starting"),
    ],
)
def test_who_does_not_run_says_why(scene: Scene, service: Mapping[str, Any], error: type[Exception], text: str) -> None:
    """Each state has an error of its own."""
    plane = drawn(scene, **service)
    with pytest.raises(error, match=text):
        plane.require_running(next(iter(plane.directory)))


class Running:
    """A service digits that time passes for."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch, **service: Any) -> None:
        self.time = Time()
        self.scene = scene
        monkeypatch.setattr("gateway.plane.Memory", lambda: Memory(self.time.clock()))
        self.plane = drawn(scene, **service)

    def changes(self, **service: Any) -> None:
        self.plane = drawn(self.scene, self.plane, **service)

    @property
    def runs(self) -> bool:
        try:
            self.plane.require_running(next(iter(self.plane.directory)))
        except ServiceExpired:
            return False
        return True


def test_a_service_stops_after_its_duration(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the second, without anybody's doing."""
    service = Running(scene, monkeypatch, duration="90s")
    service.time.passes(89.9)
    assert service.runs
    service.time.passes(0.2)
    assert not service.runs


def test_a_duration_is_adjusted_while_it_runs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts from the start; what was changed beside it does not begin it anew, starting again does."""
    service = Running(scene, monkeypatch, duration="1h")
    service.time.passes(3000)
    service.changes(duration="2h", owner="ada")
    service.time.passes(4000)
    assert service.runs
    service.changes(duration="1h")
    assert not service.runs
    service.changes(duration="1h", state="stopped")
    service.changes(duration="1h")
    assert service.runs
    service.changes()
    service.time.passes(1e9)
    assert service.runs


@pytest.mark.parametrize("step", [-3600, -86400, 3600])
def test_a_clock_that_steps_changes_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """Neither the hour that a service has left, nor when a moment that was given comes."""
    service = Running(scene, monkeypatch, duration="1h")
    service.time.wall += step
    service.time.passes(3599)
    assert service.runs
    service.time.passes(2)
    service.changes(duration="1h", owner="ada")
    assert not service.runs


def test_a_moment_counts_before_a_duration(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that was started elsewhere, or before a restart, ends when it was to."""
    at = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(minutes=1)
    service = Running(scene, monkeypatch, duration="1h", expires_at=at)
    assert service.runs
    service.time.passes(60)
    assert not service.runs
