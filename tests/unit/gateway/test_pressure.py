"""How short memory is, from what Linux tells, and what that changes."""

from pathlib import Path

import pytest
from scene import put

from gateway.bounds import Bounds
from gateway.config import Config, ConfigError, MemoryConfig, convert
from gateway.cycle import PAUSE_BYTES, SHORT_PAUSE_BYTES, Cycle
from gateway.memoryuse import MemoryUse
from gateway.pressure import Pressure, Stage

PAGE = 4096
MIB = 1 << 20


class Fixed:
    """Memory that is as full as it is set."""

    def __init__(self) -> None:
        self.percent = 0.0

    def fraction(self) -> float:
        return self.percent / 100


def machine(root: Path, own_mib: int, available_mib: int) -> Path:
    """A /proc of that process on that machine."""
    put(root / "proc/self/statm", f"99999 {own_mib * MIB // PAGE} 1 1 0 1 0")
    put(root / "proc/meminfo", f"MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:   {available_mib * 1024} kB\n")
    return root


def group(folder: Path, limit: str, used_mib: int, cache_mib: int) -> None:
    """A control group of version 2."""
    put(folder / "memory.max", f"{limit}\n")
    put(folder / "memory.current", f"{used_mib * MIB}\n")
    put(folder / "memory.stat", f"anon 1\ninactive_file {cache_mib * MIB}\nactive_file 5\n")


@pytest.mark.parametrize(
    ("own", "available", "percent"),
    [(100, 900, 10), (900, 100, 90), (100, 100, 50)],
)
def test_a_process_is_measured_against_what_is_left_to_it(
    tmp_path: Path, own: int, available: int, percent: float
) -> None:
    """Whatever others use of the machine."""
    assert MemoryUse(root=machine(tmp_path, own, available)).fraction() * 100 == pytest.approx(percent, rel=1e-3)


def test_a_limit_of_its_own_counts_alone(tmp_path: Path) -> None:
    """The configured bytes, and nothing else."""
    root = machine(tmp_path, 100, 1)
    assert MemoryUse(200 * MIB, root).fraction() == pytest.approx(0.5)


def test_a_container_is_measured_against_its_limit(tmp_path: Path) -> None:
    """Without the page cache that the kernel drops when asked; the tightest group above counts too."""
    root = machine(tmp_path, 100, 99_900)
    put(root / "proc/self/cgroup", "0::/pods/ours\n")
    group(root / "sys/fs/cgroup/pods/ours", str(1000 * MIB), 700, 200)
    assert MemoryUse(root=root).fraction() == pytest.approx(0.5)
    group(root / "sys/fs/cgroup/pods", str(1000 * MIB), 900, 0)
    assert MemoryUse(root=root).fraction() == pytest.approx(0.9)


def test_a_group_without_a_limit_bounds_nothing(tmp_path: Path) -> None:
    """Version 2 says `max`; version 1 a number beyond any machine."""
    root = machine(tmp_path, 100, 900)
    put(root / "proc/self/cgroup", "5:cpu,memory:/a\n0::/b\n")
    group(root / "sys/fs/cgroup/b", "max", 700, 0)
    put(root / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712")
    put(root / "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000")
    assert MemoryUse(root=root).fraction() == pytest.approx(0.1)


def test_version_1_is_read(tmp_path: Path) -> None:
    """Usage less what can be dropped, against the limit."""
    root = machine(tmp_path, 1, 999)
    put(root / "proc/self/cgroup", "5:memory:/a\n")
    folder = root / "sys/fs/cgroup/memory/a"
    put(folder / "memory.limit_in_bytes", str(1000))
    put(folder / "memory.usage_in_bytes", str(800))
    put(folder / "memory.stat", "total_inactive_file 100\n")
    assert MemoryUse(root=root).fraction() == pytest.approx(0.7)


def test_a_system_that_tells_nothing_is_calm(tmp_path: Path) -> None:
    """No files, no refusals."""
    assert MemoryUse(root=tmp_path).fraction() == 0.0


def test_stages_come_and_go() -> None:
    """A stage begins at its bound, several may begin at once, and each ends two percent below."""
    use, seen = Fixed(), []
    pressure = Pressure(MemoryConfig(), use)  # type: ignore[arg-type]
    pressure.on_change.append(seen.append)
    for percent in (84, 86, 84, 83.5, 82, 96, 94, 92.5, 91, 89, 50):
        use.percent = percent
        pressure.look()
    assert seen == [Stage.SHORT, Stage.CALM, Stage.OUT, Stage.SHORTER, Stage.SHORT, Stage.CALM]


def test_a_stage_changes_what_is_taken() -> None:
    """Idle connections and buffers from the first on, large bodies from the second; all as before afterwards."""
    bounds = Bounds(Config())
    seen = []
    try:
        for stage in (*Stage, *reversed(Stage)):
            bounds.relieve(stage)
            seen.append((bounds.connections.idle_seconds, Cycle.pause_bytes, bounds.bodies.largest))
    finally:
        bounds.relieve(Stage.CALM)
    calm, short = (5.0, PAUSE_BYTES, 64 * MIB), (1.0, SHORT_PAUSE_BYTES, 64 * MIB)
    out = (1.0, SHORT_PAUSE_BYTES, MIB)
    assert seen == [calm, short, out, out, out, out, short, calm]


def test_bounds_must_rise() -> None:
    """Else a later stage would begin before an earlier one."""
    with pytest.raises(ConfigError, match=r"limits\.memory: expected shorten_percent"):
        convert({"limits": {"memory": {"shorten_percent": 96}}}, Config, "test")
