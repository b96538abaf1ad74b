"""The example configurations and the demo models are whole, and as their descriptions say."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from gateway import config
from gateway.cli import main

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "configs").glob("*.toml"))
MODELS = sorted(path for path in (ROOT / "configs" / "models").iterdir() if path.is_dir())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_passes_check(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`tensorgate check` finds nothing wrong with any example."""
    monkeypatch.setenv("DIGITS_KEY", "a-key")
    code = main(["check", str(path)])
    assert (code, capsys.readouterr().err) == (0, "")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_says_what_it_is_for(path: Path) -> None:
    """Every example begins with a comment."""
    assert path.read_text("utf-8").startswith("# ")


def test_demo_shows_a_default_and_a_key() -> None:
    """The demo answers nameless paths and has one service behind a key, as the pages promise."""
    demo = config.load(ROOT / "configs" / "demo.toml")
    assert demo.default_service in demo.services
    assert [service.app_codes for service in demo.services.values() if service.app_auth] == [("demo-code",)]


def test_origins_of_all_models_are_told() -> None:
    """configs/models/README.md has a row, with a licence, for every model and for nothing else."""
    readme = (ROOT / "configs" / "models" / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", readme, re.MULTILINE))
    assert sorted(rows) == [path.name for path in MODELS]
    assert all(rows.values())


@pytest.mark.parametrize(("maker", "file"), [("half_plus_three", "half_plus_three/00000123"), ("iris", "iris/1")])
def test_model_is_what_the_script_makes(maker: str, file: str) -> None:
    """The model in the repository is the one that scripts/make_demo_models.py describes."""
    stored = onnx.load(ROOT / "configs" / "models" / file / "model.onnx")
    assert stored == getattr(_script("make_demo_models"), maker)()


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
