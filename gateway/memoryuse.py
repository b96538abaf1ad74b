"""How much of the memory that this process can have is taken, by what Linux tells of process, machine and container."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_NO_LIMIT = 1 << 60
"""Version 1 writes a number of about 2**63 for none."""


class MemoryUse:
    """Asked twice a second: a few small files of the kernel."""

    def __init__(self, limit_bytes: int = 0, root: Path = Path("/")) -> None:
        self._limit = limit_bytes
        self._proc = root / "proc"
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._groups = list(_groups(root))

    def fraction(self) -> float:
        """The largest of the fractions that are bounded; 0.0 where nothing can be told."""
        return max(self._fractions(), default=0.0)

    def _fractions(self) -> Iterator[float]:
        own = self._own()
        if self._limit:
            yield own / self._limit
            return
        for folder, names in self._groups:
            limit, used = _number(folder / names[0]), _number(folder / names[1])
            if limit and used and limit < _NO_LIMIT:
                yield (used - _stat(folder / "memory.stat", names[2])) / limit
        # What others use of the machine is their affair: counted is this process against what is left to it.
        available = _stat(self._proc / "meminfo", "MemAvailable:") * 1024
        if own and available:
            yield own / (own + available)

    def _own(self) -> int:
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int((self._proc / "self" / "statm").read_bytes().split()[1]) * self._page
        return 0


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The control groups whose limits bind this process, and what their files are called."""
    with contextlib.suppress(OSError):
        for line in (root / "proc" / "self" / "cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                yield from _upwards(root / "sys" / "fs" / "cgroup", path, _V2)
            elif "memory" in controllers.split(","):
                yield from _upwards(root / "sys" / "fs" / "cgroup" / "memory", path, _V1)


def _upwards(top: Path, path: str, names: tuple[str, str, str]) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The group and those above it, as far as they can be seen and have a limit."""
    folder = top / path.strip("/")
    while folder.is_relative_to(top):
        if (_number(folder / names[0]) or _NO_LIMIT) < _NO_LIMIT:
            yield folder, names
        if folder == top:
            return
        folder = folder.parent


def _number(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_bytes())
    return None


def _stat(file: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in file.read_text().splitlines():
            if line.startswith((f"{name} ", f"{name}\t")):
                return int(line.split()[1])
    return 0
