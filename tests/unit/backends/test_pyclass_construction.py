"""How a user's class is found and constructed, what it says of itself, and how its errors are told."""

import sys
from pathlib import Path
from typing import Any

import pytest
from worker_side import Refusal, SeldonComponent, child, contract, model, user_model

# Construction...


def test_parameters_come_from_the_table_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table replaces Seldon's variable, whose values have types of their own."""
    monkeypatch.setenv(
        "PREDICTIVE_UNIT_PARAMETERS",
        '[{"name": "i", "value": "3", "type": "INT"}, {"name": "d", "value": "2", "type": "DOUBLE"},'
        ' {"name": "s", "value": "t", "type": "STRING"}, {"name": "b", "value": "yes", "type": "BOOL"}]',
    )
    kind = type("Kind", (), {"__init__": lambda self, **given: setattr(self, "given", given)})
    assert model(kind).instance.given == {"i": 3, "d": 2.0, "s": "t", "b": True}
    assert model(kind, {"x": 1}).instance.given == {"x": 1}


@pytest.mark.parametrize("error", [NotImplementedError(), user_model.SeldonNotImplementedError("load")])
def test_load_may_be_missing(error: Exception) -> None:
    """A load() that is not implemented is none."""

    def load(self: Any) -> None:
        raise error

    assert model(type("Kind", (), {"load": load})).has == []


def test_what_the_class_says_of_itself() -> None:
    """Its methods, whether it wants headers, and its own metadata."""

    class Kind:
        def predict(self, X: Any, names: Any, headers: Any) -> Any:
            return X

        def init_metadata(self) -> dict[str, Any]:
            return {"name": "n"}

    assert model(Kind).describe() == {"has": ["predict", "headers"], "init_metadata": {"name": "n"}}


@pytest.mark.parametrize(
    ("entry", "found"), [("mod:Kind", "mod.Kind"), ("mod", "mod.mod"), ("pack.sub.Kind", "pack.sub.Kind")]
)
def test_entries_as_ours_and_as_seldons(
    entry: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`module:Class`, a module whose class has its name, and a dotted path all find the class."""
    (tmp_path / "mod.py").write_text("class Kind:\n    pass\nclass mod:\n    pass\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "sub.py").write_text("class Kind:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    kind = contract._class(entry)
    for name in ("mod", "pack", "pack.sub"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert f"{kind.__module__}.{kind.__name__}" == found


# Errors...


class Coded(Exception):
    """Somebody's own exception with a status."""

    status_code = 422

    def to_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refusal("no"), ("user", "no", 400, "MICROSERVICE_BAD_DATA")),
        (Refusal("tea", 418, {"x": 1}, "MINE"), ("user", "tea", 418, "MINE")),
        (Refusal("odd", 200), ("user", "odd", 500, "MICROSERVICE_BAD_DATA")),
        (Coded("c"), ("user", "c", 422, "MICROSERVICE_BAD_DATA")),
        (KeyError("k"), ("failed", "'k'", None, None)),
        (ValueError("in /models/m/1/f.txt"), ("failed", "in f.txt", None, None)),
        (FileNotFoundError(2, "No such file", "/secret/f.bin"), ("failed", "No such file: f.bin", None, None)),
        (ImportError("no x (/usr/lib/a/b.py), /bin/sh"), ("failed", "no x (b.py), sh", None, None)),
        (
            ValueError("/no-root/a, http://h/usr/x, 1/2"),
            ("failed", "/no-root/a, http://h/usr/x, 1/2", None, None),
        ),
        (SystemExit(1), ("failed", "the class raised SystemExit", None, None)),
        (MemoryError(), ("memory", "", None, None)),
    ],
)
def test_errors_as_they_are_told(error: BaseException, told: tuple[Any, ...]) -> None:
    """Statuses are kept where they are errors, paths are not shown."""
    found = child.failure(error, None, "/models/m/1")
    assert tuple(found.get(name) for name in ("kind", "message", "status", "reason")) == told


def test_the_shim_is_what_classes_import() -> None:
    """Seldon's names are where Seldon has them, and its exception has its body."""
    assert issubclass(user_model.SeldonNotImplementedError, Refusal)
    assert Refusal("m", reason="R").to_dict() == {"status": {"status": 1, "info": "m", "code": -1, "reason": "R"}}
    for name in ("predict", "transform_input", "route", "aggregate", "send_feedback", "tags", "health_status"):
        with pytest.raises(user_model.SeldonNotImplementedError, match=f"{name} is not implemented"):
            getattr(SeldonComponent(), name)(*[None] * (getattr(SeldonComponent, name).__code__.co_argcount - 1))
