"""What counts as a change of a models folder, and from when on it counts."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from scene import put

from gateway import repository
from gateway.repository import FINGERPRINT_DEPTH, scan, settle

# What counts as a change...


def fingerprint(root: Path) -> str:
    """Of the only version of the only model."""
    (version,) = scan([root]).models["iris"].versions.values()
    return version.fingerprint


def replace_with_same_size(root: Path) -> None:
    """As `mv new old` does: another inode, everything else alike."""
    model = root / "iris/1/model.onnx"
    found = model.stat()
    fresh = put(root / "iris/.fresh", "y")
    os.utime(fresh, ns=(found.st_atime_ns, found.st_mtime_ns))
    fresh.rename(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: put(root / "iris/1/model.onnx", "longer"),
        lambda root: os.utime(root / "iris/1/model.onnx", ns=(1, 1)),
        replace_with_same_size,
        lambda root: put(root / "iris/1/labels.txt"),
        lambda root: put(root / "iris/1/assets/a/b.txt"),
        lambda root: (root / "iris/1/model.onnx").unlink(),
        lambda root: put(root / "iris/model.toml", "[ort]\nthreads = 2"),
        lambda root: put(root / "iris/model.toml", '[signatures.a]\nmethod = "regress"'),
        lambda root: (root / "iris/1").rename(root / "iris/01"),
    ],
)
def test_changed(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """Whatever a loaded version depends on changes its fingerprint."""
    put(tmp_path / "iris/1/model.onnx")
    before = fingerprint(tmp_path)
    change(tmp_path)
    assert before != fingerprint(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: put(root / "iris/1/.model.onnx.swp"),
        lambda root: put(root / "iris/1/.cache/x"),
        lambda root: put(root / "iris/1/__pycache__/x.pyc"),
        lambda root: put(root / "iris/notes.txt"),
        lambda root: put(root / "iris/model.toml", 'versions = "all"\nlabels = { stable = 1 }'),
        lambda root: put(root / "/".join(["iris/1", *"abcdefghi"[: FINGERPRINT_DEPTH + 1], "deep"])),
    ],
)
def test_unchanged(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """What a loaded version does not depend on leaves its fingerprint alone."""
    put(tmp_path / "iris/1/model.onnx")
    before = fingerprint(tmp_path)
    change(tmp_path)
    assert before == fingerprint(tmp_path)


def test_labels_of_a_flat_model(tmp_path: Path) -> None:
    """A model without a number is not loaded anew for new labels either."""
    put(tmp_path / "iris/model.onnx")
    before = fingerprint(tmp_path)
    put(tmp_path / "iris/model.toml", "labels = { stable = 1 }")
    assert before == fingerprint(tmp_path)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), FileNotFoundError(2, "gone"), NotADirectoryError(20, "a file")]
)
def test_closed_version(tmp_path: Path, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version whose files cannot be listed has changed; its neighbours have not."""
    put(tmp_path / "iris/1/model.onnx")
    put(tmp_path / "iris/2/model.onnx")
    before = scan([tmp_path]).models["iris"].versions
    whole = os.scandir

    def closed(path: Path) -> object:
        if Path(path).name == "2":
            raise error
        return whole(path)

    monkeypatch.setattr(os, "scandir", closed)
    now = scan([tmp_path]).models["iris"].versions
    assert [number for number in now if now[number] == before[number]] == [1]


def test_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many files of a version are looked at and no more, in the order of their names."""
    monkeypatch.setattr(repository, "FINGERPRINT_FILES", 2)
    for name in "abc":
        put(tmp_path / f"iris/1/{name}")
    before = fingerprint(tmp_path)
    put(tmp_path / "iris/1/c", "changed")
    assert before == fingerprint(tmp_path)
    put(tmp_path / "iris/1/b", "changed")
    assert before != fingerprint(tmp_path)


def test_switched_link(tmp_path: Path) -> None:
    """A link that is pointed elsewhere, as a mounted volume does on an update, is a change."""
    for text in ("a", "b"):
        put(tmp_path / f"iris/1/..{text}/model.onnx", text)
    (tmp_path / "iris/1/..data").symlink_to("..a")
    (tmp_path / "iris/1/model.onnx").symlink_to("..data/model.onnx")
    before = fingerprint(tmp_path)
    (tmp_path / "iris/1/..fresh").symlink_to("..b")
    (tmp_path / "iris/1/..fresh").rename(tmp_path / "iris/1/..data")
    assert before != fingerprint(tmp_path)


def test_parsed_once(tmp_path: Path) -> None:
    """A model.toml that has not changed is not parsed again."""
    put(tmp_path / "iris/model.toml", "labels = { stable = 1 }")
    put(tmp_path / "iris/1/model.onnx")
    before = scan([tmp_path])
    assert scan([tmp_path], before).models["iris"].config is before.models["iris"].config


# What counts once two looks agree...


class Watched:
    """Looks at a root as the gateway does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before = scan([root])
        self.applied = dict(self.before.models)

    def look(self) -> dict[str, list[int]]:
        now = scan([self.root], self.before)
        self.applied = settle(self.applied, self.before, now)
        self.before = now
        return {name: sorted(model.versions) for name, model in self.applied.items()}


def test_new_version_settles(tmp_path: Path) -> None:
    """A new version counts once its files have stayed the same for two looks."""
    put(tmp_path / "iris/1/model.onnx")
    watched = Watched(tmp_path)
    for text in ("h", "ha", "half"):
        put(tmp_path / "iris/2/model.onnx", text)
        assert watched.look() == {"iris": [1]}
    assert watched.look() == {"iris": [1, 2]}


def test_new_model_settles(tmp_path: Path) -> None:
    """So does a new model."""
    watched = Watched(tmp_path)
    put(tmp_path / "iris/1/model.onnx")
    assert watched.look() == {}
    assert watched.look() == {"iris": [1]}


def test_changed_version_settles(tmp_path: Path) -> None:
    """Files that change in place count once they rest, and not before."""
    put(tmp_path / "iris/1/model.onnx")
    watched = Watched(tmp_path)
    old = watched.applied["iris"].versions[1]
    for text in ("other", "other one"):
        put(tmp_path / "iris/1/model.onnx", text)
        watched.look()
        assert old == watched.applied["iris"].versions[1]
    watched.look()
    assert old != watched.applied["iris"].versions[1]


def test_absence_settles(tmp_path: Path) -> None:
    """A version or a model is gone once two looks have missed it, so a quick `rm` and `cp` takes nothing down."""
    put(tmp_path / "iris/1/model.onnx")
    put(tmp_path / "iris/2/model.onnx")
    watched = Watched(tmp_path)
    (tmp_path / "iris/2").rename(tmp_path / ".moved")
    assert watched.look() == {"iris": [1, 2]}
    assert watched.look() == {"iris": [1]}
    (tmp_path / "iris").rename(tmp_path / ".away")
    assert watched.look() == {"iris": [1]}
    assert watched.look() == {}


def test_settings_settle(tmp_path: Path) -> None:
    """New settings count once model.toml rests: a file seen half-written must not change what is served."""
    put(tmp_path / "iris/1/model.onnx")
    put(tmp_path / "iris/2/model.onnx")
    put(tmp_path / "iris/model.toml", 'versions = "all"')
    watched = Watched(tmp_path)
    for settings, seen in [("", (2, 1)), ("versions = [1]", (2, 1)), ("versions = [1]", (1,))]:
        if settings != (tmp_path / "iris/model.toml").read_text("utf-8"):
            put(tmp_path / "iris/model.toml", settings)
        watched.look()
        assert seen == watched.applied["iris"].wanted


def test_broken_settings_change_nothing(tmp_path: Path) -> None:
    """A model.toml that breaks leaves everything as it was, with its problem on top, until it is mended."""
    put(tmp_path / "iris/1/model.onnx")
    put(tmp_path / "iris/model.toml", "labels = { stable = 1 }")
    watched = Watched(tmp_path)
    good = watched.applied["iris"]
    put(tmp_path / "iris/model.toml", "labels = { stable = 1 ")
    watched.look()
    watched.look()
    broken = watched.applied["iris"]
    assert (good.config, good.versions) == (broken.config, broken.versions)
    assert "not TOML" in broken.problem
    put(tmp_path / "iris/model.toml", "labels = { beta = 1 }")
    watched.look()
    watched.look()
    mended = watched.applied["iris"]
    assert (mended.config.labels, mended.problem) == ({"beta": 1}, "")
