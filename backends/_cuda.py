"""Whether CUDA can be used on this machine, found out without a word on the terminal."""

import contextlib
import ctypes
import functools
import io
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import onnxruntime

CUDA_PROVIDER = "CUDAExecutionProvider"

_NO_DEVICE = 100
_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_PROVIDER_LIBRARIES = (
    ("onnxruntime_providers_shared.dll", "onnxruntime_providers_cuda.dll")
    if sys.platform == "win32"
    else ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so")
)


@functools.cache
def cuda_problem() -> str | None:
    """Why CUDA cannot be used here, for people; None if it can. Asked of the machine once."""
    return find_problem(onnxruntime.get_available_providers(), ctypes.CDLL, _load_provider)


def find_problem(
    providers: Collection[str], open_library: Callable[[str], Any], load_provider: Callable[[], None]
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
    try:
        load_provider()
    except OSError as error:
        return f"a CUDA library is missing ({_library_name(error)}); install tensorgate[cuda]"
    return None


def _library_name(error: OSError) -> str:
    """The loader's `libcublasLt.so.13: cannot open shared object file: ...` without what follows, or any path."""
    return Path(str(error).split(":")[0]).name


def _load_provider() -> None:
    """Load the CUDA libraries that lie in Python packages, then the provider that needs them."""
    # preload_dlls() prints what it does not find, although the system's own loader may find it later.
    with contextlib.redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()
    for name in _PROVIDER_LIBRARIES:
        ctypes.CDLL(str(Path(onnxruntime.__file__).parent / "capi" / name))
