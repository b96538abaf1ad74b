"""The scripts that set everything up, run against a Python that only takes notes; and the pinned packages."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = [ROOT / ".ci" / "run", *sorted(path for path in (ROOT / "scripts").glob("[a-z]*") if not path.suffix)]
LOCKS = [
    "build",
    "runtime",
    "test",
    "cuda",
    "grpc",
    "otel",
    "postgres",
    "clients-openai",
    "clients-sagemaker",
    "clients-triton",
]

NOTE_TAKER = """#!/bin/bash
# Stands for an interpreter: notes what it is asked to install, and makes a venv with itself in it.
case "$*" in
  "-c "*version_info*) echo "${FAKE_MINOR:-12}" ;;
  "-c "*ensurepip*) [[ -z ${FAKE_BARE:-} ]] ;;
  "-m venv"*) mkdir -p -- "${@: -1}/bin" && cp -- "$0" "${@: -1}/bin/python" ;;
  "-m pip install"*)
    echo "$*" | grep -o 'requirements/[a-z]*\\|--editable' | xargs >>"$NOTES"
    [[ ! -e $NOTES.fail ]] || exit 1 ;;
esac
"""


class Checkout:
    """A copy of what scripts/setup needs, in a folder with a space in its name, and the note-taking Python."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        for name in ("scripts/setup", "pyproject.toml", "gateway/__init__.py"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        shutil.copytree(ROOT / "requirements", self.root / "requirements")
        self.python = folder / "python"
        self.python.write_text(NOTE_TAKER, "utf-8")
        self.python.chmod(0o755)
        self.notes = folder / "notes"

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it."""
        return subprocess.run(
            [self.root / "scripts" / "setup", *arguments],
            env={**os.environ, "PYTHON": str(self.python), "NOTES": str(self.notes), **environment},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    def installed(self) -> list[str]:
        """What has been installed since the last time, a line a call of pip."""
        lines = self.notes.read_text("utf-8").splitlines() if self.notes.exists() else []
        self.notes.write_text("", "utf-8")
        return lines


BUILD_AND_RUNTIME = "requirements/build requirements/runtime"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh one."""
    return Checkout(tmp_path)


def test_setup_is_done_once(checkout: Checkout) -> None:
    """The first run installs the pinned packages and the project; the second does nothing and says nothing."""
    assert checkout.setup().returncode == 0
    assert checkout.installed() == [BUILD_AND_RUNTIME, "--editable"]
    again = checkout.setup()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert checkout.installed() == []


def test_test_packages_come_on_top(checkout: Checkout) -> None:
    """What the tests need is added to the runtime's venv, and the demo finds it whole afterwards."""
    checkout.setup("runtime")
    checkout.installed()
    assert checkout.setup("test").returncode == 0
    assert checkout.installed() == [f"{BUILD_AND_RUNTIME} requirements/test"]
    checkout.setup("runtime")
    checkout.setup("test")
    assert checkout.installed() == []


def test_half_made_venv_is_redone(checkout: Checkout) -> None:
    """When installing breaks off, nothing of it is taken for whole."""
    fail = checkout.notes.with_name("notes.fail")
    fail.touch()
    assert checkout.setup().returncode != 0
    fail.unlink()
    checkout.installed()
    assert checkout.setup().returncode == 0
    assert checkout.installed() == [BUILD_AND_RUNTIME, "--editable"]


def test_half_made_addition_is_redone(checkout: Checkout) -> None:
    """When adding the tests' packages breaks off, the venv is made anew."""
    checkout.setup()
    fail = checkout.notes.with_name("notes.fail")
    fail.touch()
    assert checkout.setup("test").returncode != 0
    fail.unlink()
    checkout.installed()
    assert checkout.setup("test").returncode == 0
    assert checkout.installed() == [BUILD_AND_RUNTIME, f"{BUILD_AND_RUNTIME} requirements/test", "--editable"]


@pytest.mark.parametrize(
    ("changed", "installed"),
    [
        ("requirements/runtime.txt", [BUILD_AND_RUNTIME, "--editable"]),
        ("requirements/test.txt", []),
        ("pyproject.toml", ["--editable"]),
    ],
)
def test_change_is_followed(checkout: Checkout, changed: str, installed: list[str]) -> None:
    """A changed lock makes the venv anew, a changed project only installs the project again."""
    checkout.setup()
    checkout.installed()
    with (checkout.root / changed).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert checkout.setup().returncode == 0
    assert checkout.installed() == installed


def test_moved_checkout_gets_a_venv_of_its_own(checkout: Checkout) -> None:
    """A venv cannot be moved, so a moved one is made anew."""
    checkout.setup()
    checkout.installed()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.setup().returncode == 0
    assert checkout.installed() == [BUILD_AND_RUNTIME, "--editable"]


def test_other_python_gets_a_venv_of_its_own(checkout: Checkout) -> None:
    """PYTHON=... is not ignored because there is a venv already."""
    checkout.setup()
    checkout.installed()
    other = checkout.python.with_name("other")
    other.write_text(NOTE_TAKER.replace("FAKE_MINOR:-12", "FAKE_MINOR:-13"), "utf-8")
    other.chmod(0o755)
    assert checkout.setup(PYTHON=str(other)).returncode == 0
    assert checkout.installed() == [BUILD_AND_RUNTIME, "--editable"]


def test_foreign_venv_is_left_alone(checkout: Checkout) -> None:
    """A .venv that the script has not made is not deleted."""
    mine = checkout.root / ".venv" / "mine"
    mine.parent.mkdir()
    mine.touch()
    done = checkout.setup()
    assert (done.returncode, mine.exists()) == (1, True)
    assert "was not made by this script" in done.stderr


@pytest.mark.parametrize("environment", [{"FAKE_MINOR": "10"}, {"PYTHON": "/does/not/exist"}])
def test_old_or_missing_python_is_told(checkout: Checkout, environment: dict[str, str]) -> None:
    """Without a Python that is new enough the script stops and says what it looked for."""
    done = checkout.setup(**environment)
    assert done.returncode == 1
    assert "no Python 3.11 or newer among: /" in done.stderr


def test_missing_venv_package_is_installed(checkout: Checkout, tmp_path: Path) -> None:
    """Where Debian has left ensurepip out, its package is installed for the Python that was chosen."""
    for name, says in (("apt-get", 'echo "$*" >>"$NOTES.apt"'), ("id", "echo 0")):
        (tmp_path / name).write_text(f"#!/bin/bash\n{says}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    done = checkout.setup(FAKE_BARE="1", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0
    calls = checkout.notes.with_name("notes.apt").read_text("utf-8").splitlines()
    assert calls == ["update -qq", "install -y -qq --no-install-recommends python3.12-venv"]


def test_unknown_profile_is_told(checkout: Checkout) -> None:
    """A misspelt argument is answered with the ones there are."""
    done = checkout.setup("tests")
    assert (done.returncode, done.stderr) == (1, "setup: usage: scripts/setup [runtime|test|cuda|grpc|otel|postgres]\n")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_is_sound(path: Path) -> None:
    """Scripts may be executed, parse, and stop at the first error."""
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    assert "set -euo pipefail" in path.read_text("utf-8")


def test_ci_runs_what_everybody_runs() -> None:
    """Continuous integration is scripts/test and nothing else."""
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == "exec scripts/test"


# The pinned packages...


def _lock(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")


def _pins(name: str) -> list[Requirement]:
    return [Requirement(line.rstrip(" \\")) for line in _lock(name).splitlines() if re.match(r"[a-z]", line)]


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_with_hashes(name: str) -> None:
    """A lock holds exact versions, each with a hash, and no address of an index."""
    pins = _pins(name)
    assert [str(pin.specifier)[:2] for pin in pins] == ["=="] * len(pins)
    entries = re.split(r"\n(?=[a-z])", _lock(name).strip())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert not re.search(r"://|--(extra-)?index|--find-links", _lock(name))


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("runtime", None),
        *((name, extra) for name in ("test", "cuda", "grpc", "otel", "postgres") for extra in (None, name)),
    ],
)
def test_lock_satisfies_the_project(name: str, extra: str | None) -> None:
    """Whatever pyproject.toml asks for is in the lock, in a version that it allows."""
    wanted = _project()["dependencies"] if extra is None else _project()["optional-dependencies"][extra]
    pinned = {pin.name.replace("_", "-"): str(pin.specifier).removeprefix("==") for pin in _pins(name)}
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pinned[requirement.name.replace("_", "-")]), requirement


@pytest.mark.parametrize("name", ["test", "cuda", "grpc", "otel", "postgres"])
def test_locks_agree(name: str) -> None:
    """What a larger lock shares with the runtime's is the same version."""
    runtime = {pin.name: str(pin.specifier) for pin in _pins("runtime")}
    shared = {pin.name: str(pin.specifier) for pin in _pins(name) if pin.name in runtime}
    assert shared == runtime


@pytest.mark.parametrize(
    ("machine", "package"), [("x86_64", "onnxruntime-gpu"), ("AMD64", "onnxruntime-gpu"), ("aarch64", "onnxruntime")]
)
@pytest.mark.parametrize("name", ["runtime", "test", "cuda", "grpc", "otel", "postgres"])
def test_one_onnx_runtime_only(name: str, machine: str, package: str) -> None:
    """Each platform gets one build of ONNX Runtime: two would overwrite each other's files."""
    builds = [pin for pin in _pins(name) if pin.name.startswith("onnxruntime")]
    chosen = [pin.name for pin in builds if _holds(pin.marker, machine)]
    assert chosen == [package]


def _holds(marker: Marker | None, machine: str) -> bool:
    return marker is None or marker.evaluate({"platform_machine": machine})
