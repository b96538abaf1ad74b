"""The models folders: what counts as a model, what is refused, and what counts as a change."""

import os
from pathlib import Path

import pytest
from scene import put

from gateway.config import ConfigError
from gateway.repository import OUTSIDE, ModelFolder, Scan, scan


def only(root: Path) -> ModelFolder:
    """The one model in the root."""
    (model,) = scan([root]).models.values()
    return model


@pytest.mark.parametrize(
    ("files", "versions"),
    [
        (["iris/1/model.onnx", "iris/3/model.onnx"], {1: "iris/1", 3: "iris/3"}),
        (["iris/0001/model.onnx"], {1: "iris/0001"}),
        (["iris/0/model.onnx"], {0: "iris/0"}),
        (["iris/01/a", "iris/1/b", "iris/001/c"], {1: "iris/1"}),
        (["iris/model.onnx"], {1: "iris"}),
        (["iris/model.onnx", "iris/2/model.onnx"], {2: "iris/2"}),
        (["iris/9223372036854775807/a", "iris/1/b"], {9223372036854775807: "iris/9223372036854775807", 1: "iris/1"}),
        (["iris/9223372036854775808/a", "iris/1/b"], {1: "iris/1"}),
        (["iris/1/a", "iris/v2/b", "iris/-3/c", "iris/.4/d", "iris/5.0/e", "iris/٦/f"], {1: "iris/1"}),
        (["iris/1/a", "iris/2"], {1: "iris/1"}),
    ],
)
def test_versions(tmp_path: Path, files: list[str], versions: dict[int, str]) -> None:
    """Folders of plain digits are versions; without any, the model's own folder is version 1."""
    for name in files:
        put(tmp_path / name)
    found = {number: str(folder.directory.relative_to(tmp_path)) for number, folder in only(tmp_path).versions.items()}
    assert versions == found


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("", (3,)),
        ('versions = "latest"', (3,)),
        ('versions = "all"', (3, 2, 1)),
        ("versions = [1, 3, 1]", (3, 1)),
        ("versions = [2, 7]", (7, 2)),
    ],
)
def test_policy(tmp_path: Path, settings: str, wanted: tuple[int, ...]) -> None:
    """The policy says which versions are to serve; a listed one counts even while it is not on disk."""
    put(tmp_path / "iris/model.toml", settings)
    for number in (1, 2, 3):
        put(tmp_path / f"iris/{number}/model.onnx")
    assert wanted == only(tmp_path).wanted


def test_backend_without_files(tmp_path: Path) -> None:
    """A model of another backend than ort needs no model.onnx."""
    put(tmp_path / "iris/model.toml", 'backend = "echo"')
    assert list(only(tmp_path).versions) == [1]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (["iris/README.md"], "holds neither a numbered folder nor model.onnx"),
        (
            ["iris/lin.onnx"],
            "nor model.onnx; it holds lin.onnx, which is not read under that name",
        ),
        (["_iris/1/model.onnx"], "not a model name"),
        (["iris classic/1/model.onnx"], "not a model name"),
        (["iris\n/1/model.onnx"], "not a model name"),
        (["írис/1/model.onnx"], "not a model name"),
        (["i" * 129 + "/1/model.onnx"], "not a model name"),
    ],
)
def test_no_model(tmp_path: Path, files: list[str], problem: str) -> None:
    """A folder that is no model is told of, and does not hide the others."""
    put(tmp_path / "good/1/model.onnx")
    for name in files:
        put(tmp_path / name)
    found = scan([tmp_path])
    assert list(found.models) == ["good"]
    assert [files[0].partition("/")[0]] == list(found.problems)
    assert problem in "".join(found.problems.values())


def test_hidden_and_plain_files_are_nothing(tmp_path: Path) -> None:
    """Hidden folders and files beside the models are passed over in silence."""
    put(tmp_path / ".git/1/model.onnx")
    put(tmp_path / "README.md")
    assert Scan({}, {}, frozenset()) == scan([tmp_path])


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        (["wine.onnx", "iris/1/model.onnx"], {"wine.onnx": "put it at wine/1/model.onnx"}),
        (["model.onnx"], {"model.onnx": "put it at NAME/1/model.onnx"}),
        (["model.toml", "1/model.onnx"], {"model.toml": "name the folder that it lies in", "1": "if it is a version"}),
        (["1/model.onnx", "2/model.onnx"], {"1": "is served as a model named 1", "2": "is served as a model named 2"}),
        (["1/model.onnx", "iris/1/model.onnx"], {}),
        (["1/1/model.onnx"], {}),
        ([".wine.onnx", "wine.onnx/1/model.onnx"], {}),
    ],
)
def test_what_looks_like_a_model_itself_is_told_of(tmp_path: Path, files: list[str], problems: dict[str, str]) -> None:
    """Who names a model's own folder, or leaves a model's file beside the models, learns where it belongs."""
    for name in files:
        put(tmp_path / name)
    found = scan([tmp_path]).problems
    assert problems.keys() == found.keys()
    assert [name for name, part in problems.items() if part not in found[name]] == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("backend = 3", "iris/model.toml: backend: Expected `str`, got `int`"),
        ("backend = ", "model.toml: not TOML"),
        ("x = " + "[" * 5000, "not TOML"),
        ("x = " + "9" * 5000, "not TOML"),
        ("placemnet = 1", "iris/model.toml: placemnet: unknown key"),
        ("#" * (1 << 20) + "#", "Expected a file of at most 1048576 bytes"),
    ],
)
def test_bad_settings(tmp_path: Path, settings: str, problem: str) -> None:
    """A model.toml that cannot be used is the model's problem, and no path is in its text."""
    put(tmp_path / "iris/model.toml", settings)
    put(tmp_path / "iris/1/model.onnx")
    found = scan([tmp_path])
    assert list(found.models["iris"].versions) == [1]
    assert problem in found.models["iris"].problem
    assert {"iris": found.models["iris"].problem} == found.problems
    assert str(tmp_path) not in found.models["iris"].problem


def test_first_root_wins(tmp_path: Path) -> None:
    """Of a name in two roots the first counts, and the second is told of."""
    put(tmp_path / "a/iris/1/model.onnx")
    put(tmp_path / "b/iris/2/model.onnx")
    put(tmp_path / "b/wine/1/model.onnx")
    found = scan([tmp_path / "a", tmp_path / "b"])
    assert {name: list(model.versions) for name, model in found.models.items()} == {"iris": [1], "wine": [1]}
    assert found.problems == {"iris": "lies in two models folders; the first of them counts"}


def test_first_root_wins_with_its_problem(tmp_path: Path) -> None:
    """A problem of the model that counts is told of before that of the one that does not."""
    put(tmp_path / "a/iris/1/model.onnx")
    put(tmp_path / "a/iris/model.toml", "backend = 3")
    put(tmp_path / "b/iris/2/model.onnx")
    found = scan([tmp_path / "a", tmp_path / "b"])
    assert list(found.models["iris"].versions) == [1]
    assert found.problems == {"iris": found.models["iris"].problem}


# Nothing leads out of a root...


def test_root_may_be_a_link(tmp_path: Path) -> None:
    """A root itself may be a symbolic link."""
    put(tmp_path / "real/iris/1/model.onnx")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert tmp_path / "real/iris/1" == only(tmp_path / "link").versions[1].directory


@pytest.mark.parametrize("target", ["../outside/iris", "..", ".", "/"])
def test_model_outside(tmp_path: Path, target: str) -> None:
    """A model folder that leads out of its root, or is the root, is refused."""
    put(tmp_path / "outside/iris/1/model.onnx")
    put(tmp_path / "root/good/1/model.onnx")
    (tmp_path / "root/iris").symlink_to(target)
    found = scan([tmp_path / "root"])
    assert list(found.models) == ["good"]
    assert found.problems == {"iris": OUTSIDE}


def test_version_outside(tmp_path: Path) -> None:
    """A version folder that leads out of the root is refused by itself; nothing below it is looked at."""
    put(tmp_path / "outside/model.onnx")
    put(tmp_path / "root/iris/1/model.onnx")
    (tmp_path / "root/iris/2").symlink_to(tmp_path / "outside")
    versions = only(tmp_path / "root").versions
    assert (versions[1].problem, versions[2].problem) == ("", OUTSIDE)
    put(tmp_path / "outside/more.onnx")
    assert versions == only(tmp_path / "root").versions


def test_links_inside(tmp_path: Path) -> None:
    """Links that stay inside the root are followed, so that a folder can be switched at once."""
    put(tmp_path / "store/.blobs/a/model.onnx")
    (tmp_path / "store/iris").mkdir()
    (tmp_path / "store/iris/1").symlink_to("../.blobs/a")
    (tmp_path / "store/wine").symlink_to("iris")
    found = scan([tmp_path / "store"]).models
    assert tmp_path / "store/.blobs/a" == found["iris"].versions[1].directory == found["wine"].versions[1].directory


def test_settings_outside(tmp_path: Path) -> None:
    """A model.toml that leads out of the root is not read."""
    put(tmp_path / "secret", 'backend = "echo"')
    put(tmp_path / "root/iris/1/model.onnx")
    (tmp_path / "root/iris/model.toml").symlink_to(tmp_path / "secret")
    model = only(tmp_path / "root")
    assert ("ort", f"iris/model.toml: {OUTSIDE}") == (model.config.backend, model.problem)


def test_settings_that_are_no_file(tmp_path: Path) -> None:
    """A pipe in place of model.toml is not opened: that would wait for ever."""
    put(tmp_path / "iris/1/model.onnx")
    os.mkfifo(tmp_path / "iris/model.toml")
    assert "Expected a file" in only(tmp_path).problem


def test_link_loops(tmp_path: Path) -> None:
    """Links that go round in circles end the look, not the gateway."""
    put(tmp_path / "iris/1/model.onnx")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "iris/1/again").symlink_to("..")
    (tmp_path / "iris/1/self").symlink_to("self")
    found = scan([tmp_path])
    assert (list(found.models), found.problems) == (["iris"], {})


# What cannot be looked at stays as it was...


def test_missing_root(tmp_path: Path) -> None:
    """A root that cannot be read is an error at start; later the models known from it stay."""
    put(tmp_path / "models/iris/1/model.onnx")
    before = scan([tmp_path / "models"])
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        scan([tmp_path / "models"])
    found = scan([tmp_path / "models"], before)
    assert (before.models, frozenset({"iris"})) == (found.models, found.unread)
    assert {"cannot be read: No such file or directory"} == set(found.problems.values())


def test_unreadable_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that cannot be looked at, say for want of file descriptors, stays as it was."""
    put(tmp_path / "iris/1/model.onnx")
    put(tmp_path / "wine/1/model.onnx")
    before = scan([tmp_path])
    whole = os.scandir

    def scarce(path: Path) -> object:
        if Path(path) == tmp_path / "iris":
            raise OSError(24, "Too many open files")
        return whole(path)

    monkeypatch.setattr(os, "scandir", scarce)
    found = scan([tmp_path], before)
    assert (before.models, frozenset({"iris"})) == (found.models, found.unread)
    assert found.problems == {"iris": "cannot be read: Too many open files"}
    assert list(scan([tmp_path]).models) == ["wine"]
    put(tmp_path / "second/iris/1/model.onnx")
    assert list(scan([tmp_path, tmp_path / "second"]).models) == ["wine"]
