"""What this machine has and what of it is used: the manual's table of node resources."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct


class Accelerator(Struct, frozen=True):
    """One card."""

    index: int
    model: str
    driver: str
    memory_mib: int
    memory_used_mib: int


class Machine(Struct, frozen=True):
    """One machine."""

    name: str
    state: str
    """idle, or tight when less than a tenth of its memory or processors is free."""
    system: str
    kernel: str
    memory_mib: int
    memory_used_mib: int
    cores: int
    load: float
    """Processes that ran or wanted to, on average over the last minute."""
    accelerators: tuple[Accelerator, ...] = ()


def machine() -> Machine:
    """This one, now."""
    total, free = _memory()
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    tight = free < total / 10 or load > cores * 0.9
    return Machine(
        name=platform.node(),
        state="tight" if tight else "idle",
        system=_system(),
        kernel=platform.release(),
        memory_mib=total,
        memory_used_mib=total - free,
        cores=cores,
        load=round(load, 2),
        accelerators=tuple(_accelerators()),
    )


def _memory() -> tuple[int, int]:
    """MiB, all and free."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0, 0
    told = {name: int(value.split()[0]) // 1024 for name, _, value in (line.partition(":") for line in lines)}
    return told.get("MemTotal", 0), told.get("MemAvailable", 0)


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _accelerators() -> Iterator[Accelerator]:
    """NVIDIA's, as its own tool tells of them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return
    query = "index,name,driver_version,memory.total,memory.used"
    try:
        told = subprocess.run(
            [tool, f"--query-gpu={query}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in told.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and cells[0].isdecimal():
            index, model, driver, memory, used = cells
            yield Accelerator(int(index), model, driver, _whole(memory), _whole(used))


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0
