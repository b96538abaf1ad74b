"""ONNX Runtime's texts, made fit to be shown."""

from pathlib import Path

import pytest

from backends._failures import MAX_CHARS, answer, of_device, shown
from gateway.errors import InferenceFailed, InvalidTensor, OutOfMemory

SOURCE = "/onnxruntime_src/onnxruntime/core"


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running Gather node. "
            "Name:'/model/Gather' Status Message: indices element out of data bounds, idx=9",
            "Gather: indices element out of data bounds, idx=9",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Loop node. Name:'' "
            "Status Message: Non-zero status code returned while running Reshape node. Name:'' Status Message: "
            f"{SOURCE}/providers/cpu/tensor/reshape_helper.h:91 onnxruntime::ReshapeHelper::ReshapeHelper("
            "const onnxruntime::TensorShape&, bool) a == b was false. The input tensor cannot be reshaped\n",
            "Loop: Reshape: The input tensor cannot be reshaped",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Load model from /srv/models/demo/1/model.onnx failed:"
            f"{SOURCE}/graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, const std::string&) "
            "Unsupported model IR version",
            "Unsupported model IR version",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Div node. Name:'' "
            "Status Message: element_wise_ops.cc:692 Compute Integer division by zero",
            "Div: Integer division by zero",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Mod node. Name:'' "
            "Status Message: element_wise_ops.cc:2256 operator() Integer modulo by zero",
            "Mod: Integer modulo by zero",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running ConstantOfShape node. "
            f"Name:'' Status Message: {SOURCE}/framework/op_kernel.cc:87 virtual OrtValue* onnxruntime::"
            "OpKernelContext::OutputMLValue(int, const onnxruntime::TensorShape&) [ONNXRuntimeError] : 1 : FAIL : "
            "tensor.cc:57 CalculateTensorStorageSize Tensor shape.Size() must be >= 0\n",
            "ConstantOfShape: Tensor shape.Size() must be >= 0",
        ),
        ('data "weights.bin" resolved: "/srv/models/demo/1/weights.bin"', 'data "weights.bin" resolved: "weights.bin"'),
        ("could not open /home/someone/x.bin, twice", "could not open , twice"),
        ("at 0x7f00deadbeef of C:\\Users\\me\\m.onnx", "at of"),
        (
            "run(): incompatible arguments. Invoked with: <session>, {'x': array([1, 2])}",
            "run(): incompatible arguments.",
        ),
        ("line one\n   line two\r\n", "line one line two"),
        ("either/or and 1/2 stay", "either/or and 1/2 stay"),
        ("x" * 600, "x" * MAX_CHARS + "..."),
    ],
)
def test_shown(raised: str, said: str) -> None:
    """Codes, node names, source lines, paths and addresses go; what went wrong stays."""
    assert shown(Exception(raised), (Path("/srv/models/demo/1"), Path("/srv/models/demo"))) == said


def test_folders_with_spaces() -> None:
    """A hidden folder goes as a whole, even where a path seems to end earlier."""
    error = Exception("Load of /srv/my models/demo/model.onnx failed")
    assert shown(error, (Path("/srv/my models/demo"),)) == "Load of model.onnx failed"


def test_sources_of_the_cuda_provider() -> None:
    """A check that fails in CUDA's source files is about the request, not the device."""
    text = f"{SOURCE}/providers/cuda/math/matmul.cc:90 onnxruntime::cuda::MatMul::Compute(int) a was false. left is 2"
    assert not of_device(Exception(text))
    assert of_device(Exception("CUDNN failure 8: CUDNN_STATUS_EXECUTION_FAILED"))


@pytest.mark.parametrize("text", ["std::bad_alloc", "Failed to allocate memory for requested buffer of size 4096"])
def test_want_of_memory_is_told_as_such(text: str) -> None:
    """Neither the model's fault nor the caller's: protocols have a status of its own for it."""
    assert isinstance(answer(RuntimeError(text), proven=True), OutOfMemory)


@pytest.mark.parametrize("text", ["stod", "value of k must not be negative"])
def test_a_model_that_has_answered_before_stumbles_over_the_request(text: str) -> None:
    """What only some values bring about is the client's to mend; in a model that never answered, nobody knows."""
    assert isinstance(answer(Exception(text), True), InvalidTensor)
    assert isinstance(answer(Exception(text), False), InferenceFailed)
    assert isinstance(answer(Exception(f"CUDA failure 700: {text}"), True), InferenceFailed)


@pytest.mark.parametrize("proven", [False, True])
@pytest.mark.parametrize(
    "text", ["a cannot be reshaped to the requested shape", "indices element out of bounds", "Integer modulo by zero"]
)
def test_shapes_indices_and_zeros_are_the_requests_from_the_first_on(text: str, proven: bool) -> None:
    """A model that refuses the zeros it is warmed up with has not answered yet, and may be sound."""
    assert isinstance(answer(Exception(text), proven), InvalidTensor)
    assert isinstance(answer(Exception(f"CUDA failure 700: {text}"), proven), InferenceFailed)
