"""Why CUDA cannot be used, asked of machines that lack one thing each."""

import ctypes
from typing import Any

import onnxruntime
import pytest

from backends import embed, ort
from backends._cuda import CUDA_PROVIDER, find_clash, find_problem

WITH_CUDA = (CUDA_PROVIDER, "CPUExecutionProvider")


class Driver:
    """The two calls of the CUDA driver that are made."""

    def __init__(self, init: int = 0, count: int = 1, count_code: int = 0) -> None:
        self.init, self.count, self.count_code = init, count, count_code

    def cuInit(self, flags: int) -> int:  # noqa: N802, the driver's own name
        assert flags == 0
        return self.init

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802, the driver's own name
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self.count
        return self.count_code


def no_library(name: str) -> Any:
    """The loader on a machine without that library."""
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")


def all_libraries() -> str:
    """What ONNX Runtime prints where every library is found."""
    return ""


def missing_libraries() -> str:
    """What ONNX Runtime prints on a machine without the CUDA libraries."""
    return (
        "Failed to load /opt/secret/libcublasLt.so.13: cannot open shared object file\n"
        "Failed to load libcurand.so.10: libcurand.so.10: cannot open shared object file\n"
        "Please follow some page to install CUDA.\n"
    )


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (Driver(init=100), "no CUDA device is visible to this process"),
        (Driver(count=0), "no CUDA device is visible to this process"),
        (Driver(init=999), "the NVIDIA driver does not start (CUDA error 999)"),
        (Driver(count_code=3), "the NVIDIA driver does not start (CUDA error 3)"),
        (Driver(), None),
    ],
)
def test_the_driver(driver: Driver, said: str | None) -> None:
    """A driver without devices is told from one that does not start, and a good one is no problem."""
    assert find_problem(WITH_CUDA, lambda name: driver, all_libraries) == said


def test_no_driver() -> None:
    """The library that is missing is named."""
    assert find_problem(WITH_CUDA, no_library, all_libraries) == "no NVIDIA driver (libcuda.so.1) on this machine"


def test_no_build() -> None:
    """A build without CUDA is told by the package's name."""
    problem = find_problem(("CPUExecutionProvider",), no_library, missing_libraries)
    assert problem == "this build of ONNX Runtime has no CUDA (the package is onnxruntime, not onnxruntime-gpu)"


def test_no_cuda_libraries() -> None:
    """The first missing library is named without its path, and so is what installs it."""
    problem = find_problem(WITH_CUDA, lambda name: Driver(), missing_libraries)
    assert problem == "a CUDA library is missing or does not load (libcublasLt.so.13); install tensorgate[cuda]"


def test_this_machine(capfd: pytest.CaptureFixture[str]) -> None:
    """Asking this machine prints nothing, and agrees with whether CUDA sessions start here."""
    problem = ort.cuda_problem()
    assert capfd.readouterr() == ("", "")
    if problem is None:
        assert CUDA_PROVIDER in onnxruntime.get_available_providers()
    else:
        assert "/" not in problem


def test_two_builds_of_one_package_are_noticed() -> None:
    """They share their files, so nobody can tell which one is in force."""
    assert find_clash({"numpy", "onnxruntime-gpu"}) is None
    clash = find_clash({"numpy", "onnxruntime-gpu", "onnxruntime"})
    assert clash == (
        "onnxruntime and onnxruntime-gpu are both installed and overwrite each other: uninstall both, then install one"
    )


@pytest.mark.parametrize(
    ("device", "problem", "expected"),
    [("auto", None, True), ("cuda", None, True), ("cpu", None, False), ("auto", "no driver", False)],
)
@pytest.mark.parametrize("backend", [ort, embed], ids=["ort", "embed"])
def test_a_model_on_the_gpu_is_there_once(
    monkeypatch: pytest.MonkeyPatch, backend: Any, device: Any, problem: str | None, expected: bool
) -> None:
    """Each of many processes would fill the card's memory; the machine's own is theirs."""
    monkeypatch.setattr(backend, "cuda_problem", lambda: problem)
    assert backend.shared(device) is expected
