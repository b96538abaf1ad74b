"""Answers kept for later in a folder, and inputs that lie in one."""

import os
from pathlib import Path

import pytest

from gateway.config import ConfigError, ResultsConfig
from gateway.errors import BodyTooLarge, MalformedBody
from gateway.inputs import Inputs
from gateway.results import OWN_FILE, ResultsFolder


def folder(base: Path, **keys: object) -> ResultsFolder:
    """The folder `results` below `base`, ready for use."""
    made = ResultsFolder(ResultsConfig(dir="results", **keys), base)  # type: ignore[arg-type]
    made.prepare()
    return made


def names(base: Path) -> list[str]:
    """What lies in the folder, marks included."""
    return sorted(path.name for path in (base / "results").iterdir() if path.name != OWN_FILE)


# The folder...


def test_a_folder_is_made(tmp_path: Path) -> None:
    """With its parents, and taken again at the next start."""
    config = ResultsConfig(dir="a/b")
    ResultsFolder(config, tmp_path).prepare()
    (tmp_path / "a/b/old.out").touch()
    ResultsFolder(config, tmp_path).prepare()
    assert (tmp_path / "a/b/old.out").exists()


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    """Nothing is ever cleaned where other files lie."""
    (tmp_path / "report.out").touch()
    with pytest.raises(ConfigError, match=r"results.dir: \. holds other files"):
        ResultsFolder(ResultsConfig(dir="."), tmp_path).prepare()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A file in its place, for one."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"results\.dir: file/x cannot be used: Not a directory"):
        ResultsFolder(ResultsConfig(dir="file/x"), tmp_path).prepare()


@pytest.mark.parametrize(
    ("uri", "start"),
    [("s3://bucket/out", "s3://bucket/out/"), ("s3://bucket/out/", "s3://bucket/out/"), ("", "file://")],
)
def test_the_client_is_told_where_the_answer_will_lie(tmp_path: Path, uri: str, start: str) -> None:
    """By the configured prefix, else by the folder's own URI."""
    slot = folder(tmp_path, uri=uri).hold("i9")
    prefix = start if uri else (tmp_path / "results").as_uri() + "/"
    assert (slot.results.id, slot.results.output, slot.results.failure) == (
        "i9", f"{prefix}i9.out", f"{prefix}i9.error",
    )  # fmt: skip
    assert prefix.startswith(start)


def test_an_answer_is_there_as_a_whole(tmp_path: Path) -> None:
    """Its name is held by a mark until then, and nothing but the answer is left after."""
    results = folder(tmp_path)
    slot = results.hold("i9")
    assert names(tmp_path) == [".i9.pending"]
    results.keep(slot, "out", b"answer")
    assert names(tmp_path) == ["i9.out"]
    assert (tmp_path / "results/i9.out").read_bytes() == b"answer"


@pytest.mark.parametrize("outcome", ["out", "error"])
def test_an_id_used_again_overwrites_nothing(tmp_path: Path, outcome: str) -> None:
    """Neither what is there nor what is on its way; each answer has a name of its own."""
    results = folder(tmp_path)
    first, second = results.hold("i9"), results.hold("i9")
    results.keep(first, outcome, b"first")  # type: ignore[arg-type]
    third = results.hold("i9")
    results.keep(second, "out", b"second")
    results.keep(third, "out", b"third")
    assert [slot.results.id for slot in (first, second, third)] == ["i9"] * 3
    assert len({slot.name for slot in (first, second, third)}) == 3
    assert sorted(path.read_bytes() for path in (tmp_path / "results").glob("i9*")) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("given", [None, "a/b", "../x", ".hidden", "two words", "-x", "a:b"])
def test_ids_that_are_no_file_names_get_one_made(tmp_path: Path, given: str | None) -> None:
    """The client still sees its own id; the file lies in the folder."""
    slot = folder(tmp_path).hold(given)
    assert slot.results.id == (given or slot.name)
    assert names(tmp_path) == [f".{slot.name}.pending"]
    assert slot.name.isalnum()


@pytest.mark.parametrize("given", ["", " ", " a", "a ", "a\nb", "é", "x" * 65, "a\x00b"])
def test_ids_that_no_header_should_hold_are_refused(tmp_path: Path, given: str) -> None:
    """1 to 64 printable characters, as AWS has it."""
    with pytest.raises(MalformedBody, match="1 to 64 printable"):
        folder(tmp_path).hold(given)
    assert names(tmp_path) == []


def test_old_answers_go(tmp_path: Path) -> None:
    """With their marks and pieces; new ones, strangers, links and folders stay."""
    results = folder(tmp_path, keep_seconds=100)
    place = tmp_path / "results"
    old = ["a.out", "b.error", ".c.pending", ".d.part"]
    for name in [*old, "e.txt", "new.out"]:
        (place / name).touch()
    (place / "f.out").mkdir()
    (place / "link.out").symlink_to(place / "e.txt")
    for name in [*old, "e.txt", "f.out"]:
        os.utime(place / name, (1000.0, 1000.0))
    os.utime(place / "new.out", (1050.0, 1050.0))
    os.utime(place / OWN_FILE, (0.0, 0.0))
    assert results.clean(1101.0) == 2
    assert names(tmp_path) == ["e.txt", "f.out", "link.out", "new.out"]
    assert (place / OWN_FILE).exists()


# Inputs...


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """s3://bucket and https://x.example.com/in, 10 bytes each at most; a secret lies beside the first."""
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/a.csv").write_text("1,2")
    (tmp_path / "in/deep/b c%20.csv").write_text("3,4")
    (tmp_path / "in/large").write_text("x" * 11)
    (tmp_path / "in/link").symlink_to("../secret")
    (tmp_path / "in/good").symlink_to("a.csv")
    (tmp_path / "in/ж").write_text("5")
    os.mkfifo(tmp_path / "in/pipe")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "web").mkdir()
    (tmp_path / "web/b c").write_text("6")
    return Inputs({"s3://bucket": "in", "https://x.example.com/in/": "web"}, tmp_path, 10)


@pytest.mark.parametrize(
    ("uri", "body"),
    [
        ("s3://bucket/a.csv", b"1,2"),
        ("s3://bucket/deep/b c%20.csv", b"3,4"),
        ("s3://bucket/good", b"1,2"),
        ("s3://bucket/ж", b"5"),
        ("s3://bucket/ж".encode().decode("latin-1"), b"5"),
        ("https://x.example.com/in/b%20c", b"6"),
    ],
)
def test_an_object_is_a_file(inputs: Inputs, uri: str, body: bytes) -> None:
    """Its key is the path below the prefix's folder; only web addresses are percent-encoded."""
    assert body == inputs.read(uri)


@pytest.mark.parametrize("uri", ["s3://other/a.csv", "s3://bucket2/a.csv", "/etc/passwd", "", "s3://bucket"])
def test_an_unknown_prefix_is_named(inputs: Inputs, uri: str) -> None:
    """With those there are."""
    with pytest.raises(MalformedBody, match=r"known prefix; there are: https://x.example.com/in/, s3://bucket/$"):
        inputs.locate(uri)


@pytest.mark.parametrize(
    "uri",
    ["s3://bucket/../secret", "s3://bucket//etc/passwd", "s3://bucket/./a.csv", "s3://bucket/", "s3://bucket/a\x00",
     "https://x.example.com/in/%2e%2e/secret", "https://x.example.com/in/..%2Fsecret"],
)  # fmt: skip
def test_no_uri_leads_out(inputs: Inputs, uri: str) -> None:
    """What climbs is refused before anything is looked up."""
    with pytest.raises(MalformedBody, match="names no object"):
        inputs.locate(uri)


@pytest.mark.parametrize("key", ["absent", "link", "deep", "pipe", "a.csv/b", "x" * 5000])
def test_no_object_is_there(inputs: Inputs, key: str) -> None:
    """Missing files, links that lead out, folders and pipes are all the same, and no path is told."""
    with pytest.raises(MalformedBody, match="there is no object at") as caught:
        inputs.read(f"s3://bucket/{key}")
    assert "secret" not in str(caught.value)


def test_an_object_over_the_limit_is_refused(inputs: Inputs) -> None:
    """After as many bytes as a body may have."""
    with pytest.raises(BodyTooLarge, match="limit of 10 bytes"):
        inputs.read("s3://bucket/large")
