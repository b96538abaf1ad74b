"""This process's heap: how much is resident, and how what was freed goes back to the kernel."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """What the process holds of the machine's memory; 0 where that cannot be told."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    return 0


def give_back() -> None:
    """Return freed blocks to the kernel; blocks for some milliseconds, without the interpreter's lock."""
    # PERF: glibc keeps up to 64 MiB at the top of each heap, and every hole below it. A model of 16 MiB that is closed
    # leaves all of that behind; after this call, nothing.
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
