"""Models with fake plugins, for the tests of what is loaded."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from scene import Scene, Stage

from gateway import plugins


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Fake plugins in place of the shipped ones."""
    stage = Stage()
    monkeypatch.setattr(plugins, "load", stage.plugin)
    return stage


@pytest.fixture
def scene(tmp_path: Path, stage: Stage, caplog: pytest.LogCaptureFixture) -> Iterator[Scene]:
    """An empty models folder, nothing started; no task of it may fail unseen."""
    caplog.set_level(logging.INFO, "tensorgate.models")
    yield Scene(tmp_path, stage)
    assert [record for record in caplog.records if record.name == "asyncio"] == []
