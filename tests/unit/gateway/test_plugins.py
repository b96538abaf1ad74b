"""A name in the configuration becomes a module."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from gateway import plugins
from gateway.config import ConfigError


def test_a_shipped_plugin_is_found_by_its_name() -> None:
    """Without registration: the module's name is the plugin's."""
    assert plugins.load("backends", "echo", "load").__name__ == "backends.echo"
    assert "echo" in plugins.names("backends")


@pytest.mark.parametrize("name", ["nothing", "_hidden", "os.path", "", "../echo", "__init__"])
def test_an_unknown_name_lists_what_there_is(name: str) -> None:
    """Nothing but a plain module name is ever imported."""
    with pytest.raises(ConfigError, match=r"there are: .*echo"):
        plugins.load("backends", name, "load")


@pytest.mark.parametrize(
    ("name", "exports", "text", "listed"),
    [
        ("image", "load", "no backend: 'image' has no load(); there are: ", "echo"),
        ("echo", "wrap", "no wrapper: 'echo' has no wrap(); there are: ", "image"),
        ("nothing", "load", "no backend 'nothing'; there are: ", "echo"),
        ("nothing", "wrap", "no wrapper 'nothing'; there are: ", "image"),
    ],
)
def test_a_wrapper_is_no_backend(name: str, exports: str, text: str, listed: str) -> None:
    """Nor the other way round; of the two the message lists what was wanted."""
    with pytest.raises(ConfigError) as caught:
        plugins.load("backends", name, exports)
    assert str(caught.value).startswith(text)
    there_are = str(caught.value).removeprefix(text).split(", ")
    assert {"echo", "image"} & {*there_are} == {listed}


def test_an_installed_plugin_arrives_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third party's module serves under the name of its entry point."""
    module = ModuleType("third_party_backend")
    module.load = module.Config = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "third_party_backend", module)
    entry = EntryPoint("mine", "third_party_backend", "tensorgate.backends")
    monkeypatch.setattr(plugins, "entry_points", lambda group, name="mine": [entry] if name == "mine" else [])
    assert module is plugins.load("backends", "mine", "load")
    assert "mine" in plugins.names("backends")


def test_grpc_is_asked_for_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without grpcio the key that asked for it is named, and the extra that brings it; another gap is no such thing."""
    monkeypatch.delitem(sys.modules, "gateway.rpc", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(
        ConfigError, match=r"gateway\.grpc_port: gRPC is not installed here; install tensorgate\[grpc\]"
    ):
        plugins.load_rpc()
    monkeypatch.setitem(sys.modules, "gateway.pipeline", None)
    monkeypatch.delitem(sys.modules, "grpc")
    with pytest.raises(ModuleNotFoundError, match=r"gateway\.pipeline"):
        plugins.load_rpc()


def test_a_shadowing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another distribution's `backends` before ours would otherwise be used in silence."""
    other = ModuleType("backends")
    other.__file__ = str(tmp_path / "__init__.py")
    monkeypatch.setitem(sys.modules, "backends", other)
    with pytest.raises(ConfigError, match="another package named 'backends'"):
        plugins.load("backends", "echo", "load")
