"""Answers kept for later: a folder of files `NAME.out` and `NAME.error`, whole once they are there, gone in time.

A name is held by its mark `.NAME.pending` until its answer is there, so that processes may share a folder.
"""

import contextlib
import logging
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from gateway.config import ConfigError, ResultsConfig
from gateway.errors import MalformedBody
from gateway.interfaces import Results

Outcome = Literal["out", "error"]

OWN_FILE = ".tensorgate-results"
"""Lies in every folder of ours: nothing is written or cleaned anywhere else."""

_ID = re.compile(r"[!-~](?:[ -~]{0,62}[!-~])?")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESULT = re.compile(r"\.?[A-Za-z0-9][A-Za-z0-9._-]*\.(?:out|error|pending|part)")
_TRIES = 8

log = logging.getLogger("tensorgate.results")


class Slot(Struct, frozen=True):
    """A name that is held for one answer."""

    name: str
    results: Results


class ResultsFolder:
    """The folder; its methods block, and may be called from any thread."""

    def __init__(self, config: ResultsConfig, base: Path) -> None:
        self._shown = config.dir
        self._folder = (base / config.dir).resolve()
        self._uri = config.uri.rstrip("/") or self._folder.as_uri()
        self._keep_seconds = config.keep_seconds

    def prepare(self) -> None:
        """Make the folder. Raises ConfigError if it cannot be had or is somebody else's."""
        own = self._folder / OWN_FILE
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not own.exists() and any(self._folder.iterdir()):
                raise ConfigError(f"results.dir: {self._shown} holds other files; name a folder for nothing else")
            own.touch()
        except OSError as error:
            raise ConfigError(f"results.dir: {self._shown} cannot be used: {error.strerror}") from None

    def hold(self, given_id: str | None) -> Slot:
        """A name for one answer: the caller's own where it can be a file's and is free, else one made here.

        Raises MalformedBody for an id that is none.
        """
        if given_id is not None and not _ID.fullmatch(given_id):
            raise MalformedBody("the inference's id must be 1 to 64 printable ASCII characters without outer spaces")
        made = secrets.token_hex(16)
        if given_id is not None and _SAFE.fullmatch(given_id):
            # NOTE: an id may be used again, by a retry or by somebody else; each inference has an answer of its own.
            names = [given_id, *(f"{given_id}-{secrets.token_hex(8)}" for _ in range(_TRIES))]
        else:
            names = [made]
        for name in names:
            if self._mark(name):
                results = Results(given_id or name, f"{self._uri}/{name}.out", f"{self._uri}/{name}.error")
                return Slot(name, results)
        raise OSError("no free name for a result")

    def keep(self, slot: Slot, outcome: Outcome, body: bytes) -> None:
        """Write the answer; it is there as a whole or not at all. The name is held no longer."""
        part = self._folder / f".{slot.name}.part"
        try:
            with part.open("wb") as file:
                file.write(body)
            os.replace(part, self._folder / f"{slot.name}.{outcome}")
        except OSError:
            part.unlink(missing_ok=True)
            raise
        self.let_go(slot)

    def let_go(self, slot: Slot) -> None:
        """Hold the name no longer."""
        (self._folder / f".{slot.name}.pending").unlink(missing_ok=True)

    def clean(self, now: float) -> int:
        """Remove what is older than `keep_seconds` at `now`, in Unix seconds; returns how many answers went."""
        gone = 0
        for entry in self._ours():
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime + self._keep_seconds < now:
                    os.unlink(entry.path)
                    gone += not entry.name.startswith(".")
        return gone

    def unfinished(self) -> int:
        """Names held: here, by another process, or by one that has died."""
        return sum(entry.name.endswith(".pending") for entry in self._ours())

    def _mark(self, name: str) -> bool:
        """Hold the name, unless it is held or has an answer."""
        mark = self._folder / f".{name}.pending"
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        if any((self._folder / f"{name}.{outcome}").exists() for outcome in ("out", "error")):
            mark.unlink(missing_ok=True)
            return False
        return True

    def _ours(self) -> Iterator[os.DirEntry[str]]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if _RESULT.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    yield entry
