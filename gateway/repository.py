"""The models folders as they lie on disk: names, versions, fingerprints. Nothing is loaded here.

A root may itself be a symbolic link; below it, whatever leads out of it is refused.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec import Struct

from gateway.config import NAME_PATTERN, ConfigError, ModelConfig, load_model
from gateway.types import INT64_MAX

ONNX = ".onnx"
MODEL_FILE = f"model{ONNX}"
SETTINGS_FILE = "model.toml"
FLAT_VERSION = 1
"""The version of a model whose files lie in its own folder, without a number."""

SETTINGS_BYTES = 1 << 20
FINGERPRINT_FILES = 2_000
FINGERPRINT_DEPTH = 8
UNWATCHED = frozenset({"__pycache__"})
"""Written by the act of loading, so not a change."""

OUTSIDE = "leads outside the models folder"
STRAY_FILE = f"is not served: a model is a folder, so put it at {{}}/1/{MODEL_FILE}"
STRAY_SETTINGS = "is not read here: to serve this folder as one model, name the folder that it lies in"
STRAY_VERSION = "is served as a model named {}: if it is a version, name the folder that its model's folder lies in"


class VersionFolder(Struct, frozen=True):
    """One version's files."""

    version: int
    directory: Path
    fingerprint: str
    """Changes when a file of the version does, or a setting that a loaded version depends on."""
    problem: str = ""
    """Why it must not be loaded."""


class ModelFolder(Struct, frozen=True):
    """A model with at least one version."""

    name: str
    root: Path
    directory: Path
    config: ModelConfig
    stamp: str
    """Changes when model.toml does."""
    versions: dict[int, VersionFolder]
    problem: str = ""
    """What is wrong with model.toml; `config` then means nothing."""

    @property
    def is_flat(self) -> bool:
        """Whether the files lie in the model's own folder."""
        return all(version.directory == self.directory for version in self.versions.values())

    @property
    def wanted(self) -> tuple[int, ...]:
        """The versions to serve, newest first; one that model.toml lists is wanted even if it is not on disk."""
        policy = self.config.versions
        if policy == "latest":
            return (max(self.versions),)
        return tuple(sorted(set(self.versions if policy == "all" else policy), reverse=True))


class Scan(Struct, frozen=True):
    """What one look at the roots has found."""

    models: dict[str, ModelFolder]
    problems: dict[str, str]
    """Folder to why it is no model, or not one that can be loaded as it stands."""
    unread: frozenset[str]
    """Models that could not be looked at; `models` has them as they were before, if they were."""


def scan(roots: Sequence[Path], before: Scan | None = None, single: Mapping[str, Path] = MappingProxyType({})) -> Scan:
    """The `single` models, each with a folder of its own, and those in the roots; of a name the first counts.

    `before` saves parsing what has not changed, and stands in for what cannot be read just now.
    Raises ConfigError for a root that cannot be read, unless there is a `before`.
    """
    look = _Look(before)
    for name, directory in single.items():
        look.at_single(name, directory)
    for root in roots:
        try:
            real_root = root.resolve(strict=True)
            for name, target in _folders(real_root):
                look.at_folder(root, real_root, name, target)
            look.at_strays(root, real_root)
        except OSError as error:
            if before is None:
                raise ConfigError(f"models folder {root} cannot be read: {error.strerror}") from None
            look.unread_root(root, f"cannot be read: {error.strerror}")
    return Scan(look.models, look.problems, frozenset(look.unread))


class _Look:
    """A scan in the making."""

    def __init__(self, before: Scan | None) -> None:
        self.known = before.models if before else {}
        self.models: dict[str, ModelFolder] = {}
        self.problems: dict[str, str] = {}
        self.unread: set[str] = set()

    def at_folder(self, root: Path, real_root: Path, name: str, target: Path) -> None:
        if name in self.models or name in self.unread:
            self.problems.setdefault(name, "lies in two models folders; the first of them counts")
            return
        self._add(name, lambda known: _below(root, real_root, name, target, known))

    def at_strays(self, root: Path, real_root: Path) -> None:
        """What shows that a model's own folder was named, and not the folder that it lies in."""
        for name in _strays(real_root):
            place = "NAME" if name == MODEL_FILE else name.removesuffix(ONNX)
            self.problems.setdefault(name, STRAY_SETTINGS if name == SETTINGS_FILE else STRAY_FILE.format(place))
        inside = {name: folder for name, folder in self.models.items() if folder.root == root}
        if all(name.isdigit() and folder.is_flat for name, folder in inside.items()):
            for name in inside:
                self.problems.setdefault(name, STRAY_VERSION.format(name))

    def at_single(self, name: str, directory: Path) -> None:
        self._add(name, lambda known: _single(name, directory, known))

    def _add(self, name: str, read: Callable[[ModelFolder | None], ModelFolder]) -> None:
        try:
            folder = read(self.known.get(name))
        except ConfigError as error:
            self.problems[name] = str(error)
        except OSError as error:
            self._unread_model(name, f"cannot be read: {error.strerror}")
        else:
            self.models[name] = folder
            if folder.problem:
                self.problems[name] = folder.problem

    def unread_root(self, root: Path, problem: str) -> None:
        self.problems[str(root)] = problem
        for name, folder in self.known.items():
            if folder.root == root and name not in self.models:
                self._unread_model(name, problem)

    def _unread_model(self, name: str, problem: str) -> None:
        self.problems[name] = problem
        self.unread.add(name)
        if name in self.known:
            self.models[name] = self.known[name]


def _below(root: Path, real_root: Path, name: str, target: Path, known: ModelFolder | None) -> ModelFolder:
    """The model `name` in a root; raises as `_model` does."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError("not a model name: letters, digits, '.', '_' and '-', at most 128, a letter or digit first")
    if not _inside(target, real_root):
        raise ConfigError(OUTSIDE)
    return _model(root, real_root, root / name, target, known)


def _single(name: str, directory: Path, known: ModelFolder | None) -> ModelFolder:
    """The model whose own folder it is: nothing outside of that may be opened. Raises as `_model` does."""
    target = directory.resolve(strict=True)
    return msgspec.structs.replace(_model(directory.parent, target, directory, target, known), name=name)


def _model(root: Path, real_root: Path, folder: Path, target: Path, known: ModelFolder | None) -> ModelFolder:
    """Raises ConfigError for a folder that is no model, OSError for one that cannot be looked at."""
    stamp = _stamp(target)
    if known is not None and known.stamp == stamp and not known.problem:
        config, problem = known.config, ""
    else:
        config, problem = _settings(folder / SETTINGS_FILE, real_root)
    versions = {number: _version(number, place, real_root, config) for number, place in _numbered(target).items()}
    if not versions and (problem or config.backend != "ort" or (target / MODEL_FILE).is_file()):
        versions = {FLAT_VERSION: _version(FLAT_VERSION, target, target.parent, config)}
    if not versions:
        named = ", ".join(_strays(target)[:3])
        beside = f"; it holds {named}, which is not read under that name" if named else ""
        raise ConfigError(f"holds neither a numbered folder nor {MODEL_FILE}{beside}")
    return ModelFolder(folder.name, root, target, config, stamp, versions, problem)


def _folders(directory: Path) -> Iterator[tuple[str, Path]]:
    """The folders in it that are not hidden, by name, and where each really lies; `directory` must be real."""
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if entry.is_symlink():
                if os.path.isdir(entry.path):
                    yield entry.name, Path(os.path.realpath(entry.path))
            elif entry.is_dir():
                yield entry.name, directory / entry.name


def _strays(directory: Path) -> list[str]:
    """The files of models that lie where nobody looks for them."""
    names = [name for name in os.listdir(directory) if name == SETTINGS_FILE or name.endswith(ONNX)]
    return sorted(name for name in names if not name.startswith(".") and not os.path.isdir(directory / name))


def _inside(target: Path, root: Path) -> bool:
    return target != root and target.is_relative_to(root)


def _numbered(directory: Path) -> dict[int, Path]:
    """Version number to folder. Of "1" and "0001" the plain one counts."""
    found: dict[int, Path] = {}
    for name, target in _folders(directory):
        if not (name.isascii() and name.isdigit()):
            continue
        number = int(name)
        if number <= INT64_MAX and (number not in found or name == str(number)):
            found[number] = target
    return found


def _version(number: int, directory: Path, real_root: Path, config: ModelConfig) -> VersionFolder:
    if not _inside(directory, real_root):
        return VersionFolder(number, directory, OUTSIDE, OUTSIDE)
    digest = hashlib.blake2b(
        repr((str(directory), config.backend, config.signatures, config.batching, config.plugins)).encode()
    )
    for line in islice(_files(directory), FINGERPRINT_FILES):
        digest.update(line)
    return VersionFolder(number, directory, digest.hexdigest()[:32])


# What a look costs: a `stat` a file, and one read of a model.toml that has changed...


def _stamp(directory: Path) -> str:
    """Where the model's folder is, and what of its model.toml a `stat` shows."""
    try:
        found = os.stat(directory / SETTINGS_FILE)
    except FileNotFoundError:
        return str(directory)
    return f"{directory} {found.st_size} {found.st_mtime_ns} {found.st_ino}"


def _settings(path: Path, real_root: Path) -> tuple[ModelConfig, str]:
    """The model's settings; or the defaults, and what is wrong with the file."""
    where = f"{path.parent.name}/{path.name}"
    if path.exists():
        found = path.stat()
        if not _inside(Path(os.path.realpath(path)), real_root):
            return ModelConfig(), f"{where}: {OUTSIDE}"
        if not stat.S_ISREG(found.st_mode) or found.st_size > SETTINGS_BYTES:
            return ModelConfig(), f"{where}: Expected a file of at most {SETTINGS_BYTES} bytes"
    try:
        return load_model(path), ""
    except ConfigError as error:
        return ModelConfig(), str(error)
    except (ValueError, RecursionError) as error:
        return ModelConfig(), f"{where}: not TOML: {type(error).__name__}"


def _files(directory: Path, prefix: str = "", depth: int = FINGERPRINT_DEPTH) -> Iterator[bytes]:
    """A line for each file below: its path, size, time of change and inode."""
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):  # it has just been moved away
        return
    except PermissionError:
        yield f"{prefix!r} is closed".encode()
        return
    for entry in entries:
        path = prefix + entry.name
        if entry.name.startswith(".") or entry.name in UNWATCHED or path == SETTINGS_FILE:
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield repr((path, *_shown(entry))).encode()
        elif depth:
            yield from _files(Path(entry.path), f"{path}/", depth - 1)


def _shown(entry: os.DirEntry[str]) -> tuple[int, int, int]:
    """A link shows its target, so that a change of either is seen."""
    try:
        found = entry.stat()
    except OSError:  # it is gone, or a link to nowhere
        return (0, 0, 0)
    return (found.st_size, found.st_mtime_ns, found.st_ino)


# Files are copied slowly, so a change counts once two looks in a row have seen the same...


def settle(applied: Mapping[str, ModelFolder], before: Scan, now: Scan) -> dict[str, ModelFolder]:
    """The models as two scans agree they are, and where they disagree as they were `applied` last."""
    names = sorted(applied.keys() | now.models.keys())
    settled = {name: _agreed(applied.get(name), before.models.get(name), now.models.get(name)) for name in names}
    return {name: folder for name, folder in settled.items() if folder is not None}


def _agreed(applied: ModelFolder | None, before: ModelFolder | None, now: ModelFolder | None) -> ModelFolder | None:
    if before is None or now is None:
        return None if before is now else applied
    if before.stamp != now.stamp:
        return applied
    if now.problem and applied is not None:
        return msgspec.structs.replace(applied, problem=now.problem)
    versions = {
        number: folder
        for number in now.versions.keys() | (applied.versions.keys() if applied else ())
        if (folder := _agreed_version(number, applied, before, now)) is not None
    }
    return msgspec.structs.replace(now, versions=versions) if versions else applied


def _agreed_version(
    number: int, applied: ModelFolder | None, before: ModelFolder, now: ModelFolder
) -> VersionFolder | None:
    folder = now.versions.get(number)
    if folder == before.versions.get(number):
        return folder
    return applied.versions.get(number) if applied else None
