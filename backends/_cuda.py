"""Whether CUDA can be used on this machine, found out without a word on the terminal."""

import contextlib
import ctypes
import functools
import io
import re
import sys
from collections.abc import Callable, Collection
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import onnxruntime

CUDA_PROVIDER = "CUDAExecutionProvider"

_NO_DEVICE = 100
_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_FAILED_LIBRARY = re.compile(r"^Failed to load (\S+?):", re.MULTILINE)

BUILDS = ("onnxruntime", "onnxruntime-gpu")
"""Distributions of one import package: whichever was installed last lies over the other."""


@functools.cache
def cuda_problem() -> str | None:
    """Why CUDA cannot be used here, for people; None if it can. Asked of the machine once."""
    problem = find_problem(onnxruntime.get_available_providers(), ctypes.CDLL, _preload_libraries)
    clash = find_clash({one.metadata["Name"] for one in distributions()})
    return f"{problem}; {clash}" if problem and clash else problem


def find_clash(installed: Collection[str]) -> str | None:
    """What to do where two builds of ONNX Runtime are installed; None where it is one."""
    builds = sorted(name for name in installed if name in BUILDS)
    if len(builds) < 2:
        return None
    return f"{' and '.join(builds)} are both installed and overwrite each other: uninstall both, then install one"


def find_problem(
    providers: Collection[str], open_library: Callable[[str], Any], preload_libraries: Callable[[], str]
) -> str | None:
    """The first thing that CUDA lacks: the build of ONNX Runtime, the driver, a device, the CUDA libraries."""
    if CUDA_PROVIDER not in providers:
        return "this build of ONNX Runtime has no CUDA (the package is onnxruntime, not onnxruntime-gpu)"
    try:
        driver = open_library(_DRIVER)
    except OSError:
        return f"no NVIDIA driver ({_DRIVER}) on this machine"
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code not in (0, _NO_DEVICE):
        return f"the NVIDIA driver does not start (CUDA error {code})"
    if code == _NO_DEVICE or count.value == 0:
        return "no CUDA device is visible to this process"
    if failed := _FAILED_LIBRARY.search(preload_libraries()):
        return f"a CUDA library is missing or does not load ({Path(failed[1]).name}); install tensorgate[cuda]"
    return None


def _preload_libraries() -> str:  # pragma: no cover (cuda)
    """Load the CUDA libraries, those in Python packages first; what is returned names those that do not load.

    NOTE: libonnxruntime_providers_cuda.so must not be loaded here to see whether it can be. It asks for its host
    while it is being loaded, once for all, and ONNX Runtime has not set the host before it loads the library itself.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        onnxruntime.preload_dlls()
    return printed.getvalue()
