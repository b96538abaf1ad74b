"""How sessions are made of ONNX Runtime."""

from pathlib import Path

import pytest
from onnx_models import identity, write

from backends import _session
from backends._session import Config, Model, OnnxRuntime


class Builds:
    """Stands in for the making of a session; fails at the levels it is told to."""

    def __init__(self, fails_at: set[str]) -> None:
        self.fails_at = fails_at
        self.levels: list[str] = []

    def __call__(self, model: Model, config: Config, provider: str, optimization: str) -> str:
        self.levels.append(optimization)
        if optimization in self.fails_at:
            raise RuntimeError(f"fails at {optimization}")
        return f"session at {optimization}"


@pytest.mark.parametrize(
    ("configured", "fails_at", "levels", "result"),
    [
        ("all", set(), ["all"], "session at all"),
        ("all", {"all"}, ["all", "basic"], "session at basic"),
        ("extended", {"extended"}, ["extended", "basic"], "session at basic"),
        ("all", {"all", "basic"}, ["all", "basic"], "fails at all"),
        ("basic", {"basic"}, ["basic"], "fails at basic"),
        ("off", {"off"}, ["off"], "fails at off"),
    ],
)
def test_optimizations_that_fail(
    monkeypatch: pytest.MonkeyPatch, configured: str, fails_at: set[str], levels: list[str], result: str
) -> None:
    """A graph that the higher optimizations break is loaded with the basic ones; the first failure is what is told."""
    builds = Builds(fails_at)
    monkeypatch.setattr(_session, "_open", builds)
    try:
        told = str(OnnxRuntime().open(Model(Path()), Config(optimization=configured), "CPU"))  # type: ignore[arg-type]
    except RuntimeError as error:
        told = str(error)
    assert (builds.levels, told) == (levels, result)


@pytest.mark.parametrize("rewritten", [False, True])
def test_the_model_is_not_kept(tmp_path: Path, rewritten: bool) -> None:
    """A session keeps no copy of the bytes that it was made from."""
    file = write(identity(), tmp_path) / "model.onnx"
    model = Model(file, file.read_bytes() if rewritten else None)
    assert not any(isinstance(held, bytes) for held in vars(OnnxRuntime().open(model, Config(), "CPU")).values())
