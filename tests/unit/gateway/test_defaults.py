"""What a platform says lies under the configuration file."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway import defaults, plugins
from gateway.config import ConfigError

SAID: dict[str, Any] = {
    "gateway": {"host": "0.0.0.0", "port": 9000},
    "models": {"model": "/said/model"},
    "models_dir": "/said/models",
    "models_control": {"enabled": True, "roots": "/said/roots"},
    "protocols": {"spoken": {"a": 1, "b": 1}},
}


@pytest.fixture(autouse=True)
def platform(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Two protocols, of which `spoken` has a platform that says SAID."""
    spoken, silent = ModuleType("spoken"), ModuleType("silent")
    spoken.serve_defaults = lambda: SAID  # type: ignore[attr-defined]
    monkeypatch.setattr(plugins, "names", lambda kind: ["silent", "spoken"])
    monkeypatch.setattr(plugins, "load", lambda kind, name, exports: {"spoken": spoken, "silent": silent}[name])
    return spoken


def write(folder: Path, text: str) -> Path:
    """A configuration file."""
    path = folder / "gateway.toml"
    path.write_text(text)
    return path


def test_without_a_file_it_is_what_the_platform_says() -> None:
    """All of it."""
    found = defaults.configured(None)
    assert (found.gateway.host, found.gateway.port) == ("0.0.0.0", 9000)
    assert (found.models, found.models_dir) == ({"model": "/said/model"}, "/said/models")
    assert (found.models_control.enabled, found.models_control.roots) == (True, "/said/roots")
    assert found.protocols == {"spoken": {"a": 1, "b": 1}}


def test_the_file_wins_key_by_key(tmp_path: Path) -> None:
    """What it does not name stays as the platform says."""
    text = "[gateway]\nport = 1\n[protocols.spoken]\na = 2\n[models_control]\nroots = 'r'"
    found = defaults.configured(write(tmp_path, text))
    assert (found.gateway.host, found.gateway.port) == ("0.0.0.0", 1)
    assert found.protocols == {"spoken": {"a": 2, "b": 1}}
    assert (found.models_control.enabled, found.models_control.roots) == (True, "r")


@pytest.mark.parametrize("text", ['models_dir = "mine"', '[models]\nmine = "mine"'])
def test_a_file_that_names_models_names_all(tmp_path: Path, text: str) -> None:
    """The platform's folder is then not served beside them."""
    found = defaults.configured(write(tmp_path, text))
    assert "said" not in str(found.models) + str(found.models_dir)


def test_models_on_the_command_line_are_all(tmp_path: Path) -> None:
    """They replace those of the file and of the platform."""
    path = write(tmp_path, 'models_dir = "mine"\n[models]\nmine = "mine"')
    for file in (None, path):
        found = defaults.configured(file, [tmp_path])
        assert (found.models, found.models_dir) == ({}, (str(tmp_path),))


def test_a_protocol_that_is_off_says_nothing(tmp_path: Path) -> None:
    """Its variables mean nothing to anybody."""
    found = defaults.configured(write(tmp_path, "[gateway]\nprotocols = ['silent']"))
    assert (found.gateway.port, found.protocols) == (8080, {})


@pytest.mark.parametrize("text", ["gateway = 1", "[gateway]\nprotocols = 7", "protocols = 3"])
def test_a_file_of_wrong_types_is_still_told(tmp_path: Path, text: str) -> None:
    """By name, and not by a traceback."""
    with pytest.raises(ConfigError, match=r"gateway\.toml: (gateway|protocols)"):
        defaults.configured(write(tmp_path, text))


def test_a_platform_that_makes_no_sense_is_told(platform: ModuleType) -> None:
    """With the protocol that it belongs to."""

    def confused() -> None:
        raise ValueError("PORT: expected a number, got 'x'")

    platform.serve_defaults = confused  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"^spoken: PORT: expected a number, got 'x'$"):
        defaults.configured(None)
