"""CUDA and the CPU that takes over, played through with CPU sessions: which device serves, and what is told of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import floats, identity, lookup
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, Fail, InvalidArgument, RuntimeException
from served import Load

from backends import ort
from backends._session import Model, OnnxRuntime, Provider, Session
from gateway.errors import InferenceFailed, InvalidTensor, LoadFailed, OutOfMemory
from gateway.interfaces import BackendStatus

NO_DRIVER = "no NVIDIA driver (libcuda.so.1) on this machine"
ILLEGAL_ACCESS = Fail(
    "[ONNXRuntimeError] : 1 : FAIL : CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; "
    "hostname=secret-host ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc ; line=129 ; expr=x; "
)
SHOWN_ILLEGAL_ACCESS = "CUDA failure 700: an illegal memory access was encountered"
OUT_OF_MEMORY = RuntimeException(
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running MatMul node. "
    "Name:'/a/b' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 "
    "void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer"
)


class Failing:
    """A session that fails for a while, then answers as the real one."""

    def __init__(self, session: Session, failures: list[Exception]) -> None:
        self.session = session
        self.failures = failures

    def run(self, output_names: Sequence[str], input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        if self.failures:
            raise self.failures.pop(0)
        return self.session.run(output_names, input_feed, run_options)


class Machine:
    """A machine with a CUDA device that is made of the CPU, and breaks as it is told to."""

    def __init__(self, problem: str | None = None, load_fails: Exception | None = None, cpu_fails: int = 0) -> None:
        self.problem = problem
        self.load_fails = load_fails
        self.cpu_fails = cpu_fails
        self.failures: list[Exception] = []
        """What the CUDA sessions raise, run by run."""
        self.opened: list[Provider] = []

    def cuda_problem(self) -> str | None:
        return self.problem

    def open(self, model: Model, config: ort.Config, provider: Provider) -> Session:
        self.opened.append(provider)
        if provider == "CUDA" and self.load_fails:
            raise self.load_fails
        if provider == "CPU" and self.cpu_fails:
            self.cpu_fails -= 1
            raise RuntimeError("no memory for the CPU")
        session = OnnxRuntime().open(model, config, "CPU")
        return Failing(session, self.failures) if provider == "CUDA" else session


def status(served: Any) -> BackendStatus:
    """The backend's status."""
    return served.backend.status


# Which device...


def test_cpu_on_demand(load: Load) -> None:
    """With device cpu, CUDA is neither asked about nor mentioned."""
    machine = Machine()
    assert status(load(identity(), sessions=machine, device="cpu")) == BackendStatus("CPU")
    assert machine.opened == ["CPU"]


def test_cuda_where_it_is_there(load: Load) -> None:
    """With device auto, CUDA is used."""
    assert status(load(identity(), sessions=Machine())) == BackendStatus("CUDA")


def test_no_cuda(load: Load) -> None:
    """With device auto, a machine without CUDA serves from the CPU and says why; that is no fallback."""
    served = load(identity(), sessions=Machine(NO_DRIVER))
    assert status(served) == BackendStatus("CPU", f"CUDA is not used: {NO_DRIVER}", 0)


def test_no_cuda_where_it_is_demanded(load: Load) -> None:
    """With device cuda, a machine without CUDA refuses the model with the reason."""
    with pytest.raises(LoadFailed) as caught:
        load(identity(), sessions=Machine(NO_DRIVER), device="cuda")
    assert str(caught.value) == f"device is cuda, but {NO_DRIVER}"


# Failures at load...


def test_a_session_that_cuda_refuses(load: Load) -> None:
    """With device auto, a CUDA session that cannot be made is counted and told, and the CPU serves."""
    machine = Machine(load_fails=RuntimeError("the CUDA execution provider does not start"))
    served = load(identity(), sessions=machine)
    note = "CUDA failed at load: model.onnx: the CUDA execution provider does not start"
    assert status(served) == BackendStatus("CPU", note, 1)
    assert served.infer({"x": floats(2)})["y"].tolist() == [0.0, 1.0]
    assert machine.opened == ["CUDA", "CPU"]


def test_a_session_that_cuda_refuses_where_it_is_demanded(load: Load) -> None:
    """With device cuda, it fails the load, even if run-time fallback is allowed."""
    machine = Machine(load_fails=ILLEGAL_ACCESS)
    with pytest.raises(LoadFailed) as caught:
        load(identity(), ort.Config(fallback=True), machine, device="cuda")
    assert str(caught.value) == f"model.onnx: {SHOWN_ILLEGAL_ACCESS}"
    assert machine.opened == ["CUDA"]


def test_a_warm_up_that_cuda_fails(load: Load) -> None:
    """A device that fails the warm-up run is given up at load."""
    machine = Machine()
    machine.failures.append(ILLEGAL_ACCESS)
    served = load(identity(), sessions=machine)
    assert status(served) == BackendStatus("CPU", f"CUDA failed at load: model.onnx: {SHOWN_ILLEGAL_ACCESS}", 1)


def test_a_warm_up_that_the_model_fails(load: Load) -> None:
    """A model that refuses zeros is not CUDA's failure."""
    machine = Machine()
    machine.failures.append(InvalidArgument("indices element out of data bounds"))
    assert status(load(identity(), sessions=machine)) == BackendStatus("CUDA")


@pytest.mark.parametrize("error", [MemoryError("std::bad_alloc"), OUT_OF_MEMORY])
def test_no_memory_for_the_model(load: Load, error: Exception) -> None:
    """Where memory is what is short, that is what is told; with device auto, the CPU may have more of it."""
    machine = Machine(load_fails=error)
    with pytest.raises(OutOfMemory, match=r"^model\.onnx: "):
        load(identity(), sessions=machine, device="cuda")
    assert status(load(identity(), sessions=machine)).provider == "CPU"


def test_no_memory_for_the_file(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that does not fit is not called damaged."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(onnx, "load_model", full)
    with pytest.raises(OutOfMemory, match=r"^model\.onnx is larger than what is free$"):
        load(identity())


# Failures at run time...


@pytest.mark.parametrize("error", [ILLEGAL_ACCESS, EPFail("whatever"), RuntimeException("CUBLAS failure 13")])
def test_the_cpu_takes_over(load: Load, caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """The failed request is answered by the CPU, and so are those after it; status and log tell."""
    machine = Machine()
    served = load(identity(), sessions=machine)
    machine.failures += [error] * 3
    for _ in range(2):
        assert served.infer({"x": floats(2)})["y"].tolist() == [0.0, 1.0]
    assert (status(served).provider, status(served).fallbacks) == ("CPU", 1)
    assert status(served).note.startswith("CUDA failed at run time: ")
    assert "/" not in status(served).note
    assert "secret-host" not in status(served).note
    assert machine.opened == ["CUDA", "CPU"]
    assert any("demo version 1: CUDA failed" in message for message in caplog.messages)


def test_requests_at_once_make_one_takeover(load: Load) -> None:
    """Requests that fail together share the one CPU session, and count once."""
    machine = Machine()
    served = load(identity(), sessions=machine)
    machine.failures += [ILLEGAL_ACCESS] * 20

    async def all_at_once() -> list[float]:
        arrays = [np.full(1, number, np.float32) for number in range(20)]
        return [float(one.outputs["y"][0]) for one in await asyncio.gather(*(served.respond({"x": a}) for a in arrays))]

    assert served.runner.run(all_at_once()) == list(range(20))
    assert status(served).fallbacks == 1
    assert machine.opened == ["CUDA", "CPU"]


def test_memory_that_runs_out(load: Load) -> None:
    """A request too large for the device is answered by the CPU; the device keeps the others."""
    machine = Machine()
    served = load(identity(), sessions=machine)
    for count in (1, 2):
        machine.failures.append(OUT_OF_MEMORY)
        assert served.infer({"x": floats(2)})["y"].tolist() == [0.0, 1.0]
        assert (status(served).provider, status(served).fallbacks) == ("CUDA", count)
    assert machine.opened == ["CUDA", "CPU"]


def test_no_takeover_where_cuda_is_demanded(load: Load) -> None:
    """With device cuda, a failure at run time is the request's end, unless fallback allows more."""
    machine = Machine()
    served = load(identity(), sessions=machine, device="cuda")
    machine.failures.append(ILLEGAL_ACCESS)
    with pytest.raises(InferenceFailed) as caught:
        served.infer({"x": floats(2)})
    assert str(caught.value) == f"the model failed: {SHOWN_ILLEGAL_ACCESS}"
    assert status(served) == BackendStatus("CUDA")
    allowed = load(identity(), ort.Config(fallback=True), machine, device="cuda")
    machine.failures.append(ILLEGAL_ACCESS)
    assert allowed.infer({"x": floats(2)})["y"].tolist() == [0.0, 1.0]
    assert status(allowed).provider == "CPU"


def test_a_cpu_that_cannot_take_over(load: Load) -> None:
    """If not even the CPU takes the model, the request fails, and the next one tries again."""
    machine = Machine(cpu_fails=1)
    served = load(identity(), sessions=machine)
    machine.failures += [ILLEGAL_ACCESS] * 2
    with pytest.raises(InferenceFailed) as caught:
        served.infer({"x": floats(2)})
    assert str(caught.value) == ("CUDA failed, and the CPU cannot take over: model.onnx: no memory for the CPU")
    assert served.infer({"x": floats(2)})["y"].tolist() == [0.0, 1.0]


def test_a_request_that_fails_on_both(load: Load) -> None:
    """What the CPU says of the request is what the client is told."""
    machine = Machine()
    served = load(lookup(4), sessions=machine)
    machine.failures.append(ILLEGAL_ACCESS)
    with pytest.raises(InvalidTensor, match="out of data bounds"):
        served.infer({"x": np.array([9])})


def test_a_mistake_is_no_device_failure(load: Load) -> None:
    """The caller's mistake on CUDA stays the caller's, and CUDA stays."""
    machine = Machine()
    served = load(identity(), sessions=machine)
    machine.failures.append(InvalidArgument("CUDA kernel: indices element out of data bounds"))
    with pytest.raises(InvalidTensor):
        served.infer({"x": floats(2)})
    assert status(served) == BackendStatus("CUDA")


def test_no_tensor_in_the_log(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """A call that ONNX Runtime's binding refuses is told with its arguments; nobody is shown them."""
    caplog.set_level("DEBUG")
    machine = Machine()
    served = load(identity(), sessions=machine)
    machine.failures.append(TypeError("run(): incompatible arguments.\n\nInvoked with: <it>, {'x': array([1234.5])}"))
    with pytest.raises(InvalidTensor) as caught:
        served.infer({"x": floats(2)})
    assert str(caught.value) == "the model cannot take these inputs: run(): incompatible arguments."
    assert caught.value.__cause__ is None
    assert not any("1234.5" in message for message in caplog.messages)
