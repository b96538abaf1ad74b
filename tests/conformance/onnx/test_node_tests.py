"""ONNX's own backend tests and the dtype identities, answered through the ort backend."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_cases
import pytest

from backends import ort
from gateway.errors import InferenceFailed, InvalidTensor, LoadFailed
from gateway.interfaces import ModelSource
from gateway.types import DEFAULT_SIGNATURE, InferenceRequest, ModelMetadata

Answer = tuple[dict[str, np.ndarray], ModelMetadata]
Serve = Callable[[Path, dict[str, np.ndarray]], Answer]

SIZE = (2, 3)
PLAIN_DTYPES = {
    "fp32": "float32",
    "fp64": "float64",
    "fp16": "float16",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Load one model file and answer one request."""
    version = tmp_path / "1"
    version.mkdir()

    async def run(inputs: dict[str, np.ndarray]) -> Answer:
        source = ModelSource("node_test", 1, version, tmp_path, device="cpu")
        backend = await ort.load(source, ort.Config())
        try:
            return (await backend.infer(InferenceRequest(inputs))).outputs, backend.metadata
        finally:
            await backend.close()

    def serve_file(model: Path, inputs: dict[str, np.ndarray]) -> Answer:
        shutil.copyfile(model, version / "model.onnx")
        return asyncio.run(run(inputs))

    return serve_file


@pytest.mark.parametrize("name", onnx_cases.answerable())
def test_node_test(serve: Serve, name: str) -> None:
    """The answer equals the recorded outputs, and has the dtypes that the metadata promises."""
    case = onnx_cases.read(name)
    outputs, metadata = serve(case.model, case.inputs)
    assert list(case.outputs) == list(outputs)
    for output, expected in case.outputs.items():
        onnx_cases.assert_same(expected, outputs[output], case.dtypes[output])
    declared = metadata.signatures[DEFAULT_SIGNATURE].outputs
    assert {name: spec.numpy_dtype for name, spec in declared.items()} == {
        name: value.dtype for name, value in outputs.items()
    }


@pytest.mark.parametrize(("name", "reason"), onnx_cases.NEWER.items())
def test_node_test_of_a_newer_onnx(serve: Serve, name: str, reason: str) -> None:
    """A model that is too new for ONNX Runtime is refused with the reason; where it is not, the answer is right."""
    case = onnx_cases.read(name)
    try:
        outputs, _ = serve(case.model, case.inputs)
    except LoadFailed as error:
        refusal = str(error)
    else:
        refusal = reason
        for output, expected in case.outputs.items():
            onnx_cases.assert_same(expected, outputs[output], case.dtypes[output])
    assert reason in refusal


@pytest.mark.parametrize("name", onnx_cases.RAGGED)
def test_ragged_node_test(name: str) -> None:
    """The tests listed as ragged are so: they leave the list when tensors can carry them."""
    with pytest.raises(ValueError, match="no tensor holds"):
        onnx_cases.read(name)


def test_ragged_answer(serve: Serve) -> None:
    """A model that answers a ragged sequence says so instead of giving something else."""
    model = onnx_cases.NODE_TESTS / "test_loop13_seq" / "model.onnx"
    inputs = {"trip_count": np.array(3), "cond": np.array(True), "seq_empty": np.empty((0,), np.float32)}
    with pytest.raises(InferenceFailed, match=r'"seq_res" is a sequence of tensors of different shapes'):
        serve(model, inputs)


def test_the_set_is_whole() -> None:
    """Every test of the set is answered or listed with its reason."""
    assert len(onnx_cases.names()) == 197
    assert len(onnx_cases.answerable()) + len(onnx_cases.NEWER) + len(onnx_cases.RAGGED) == 197


def extremes(dtype: str) -> np.ndarray:
    """Six values of that dtype, its limits among them. Shapes: [2, 3]."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False, False, True, True, False]).reshape(SIZE)
    if kind.kind == "f":
        limits = np.finfo(kind)
        return np.array([limits.min, limits.max, limits.smallest_subnormal, np.inf, np.nan, -0.0], kind).reshape(SIZE)
    limits = np.iinfo(kind)
    return np.array([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], kind).reshape(SIZE)


@pytest.mark.parametrize("file", ["all13", "all14"])
def test_every_dtype_comes_back(serve: Serve, file: str) -> None:
    """Every dtype's limits, NaN and signed zero come back bit for bit, and so do texts of any script."""
    inputs = {f"in_{name}": extremes(dtype) for name, dtype in PLAIN_DTYPES.items()}
    inputs["in_bytes"] = np.array(["", "a\0b", "ä", "漢字", "😀", " "], object).reshape(SIZE)
    if file == "all14":
        inputs["in_bf16"] = extremes("float32").astype(ml_dtypes.bfloat16).astype(np.float32)
    outputs, _ = serve(onnx_cases.DTYPE_IDENTITY / f"{file}.onnx", inputs)
    for name, expected in inputs.items():
        actual = outputs[name.replace("in_", "out_")]
        assert expected.dtype == actual.dtype
        if expected.dtype == object:
            assert expected.tolist() == actual.tolist()
        else:
            assert expected.tobytes() == actual.tobytes()


def test_every_bfloat16_comes_back(serve: Serve) -> None:
    """All 65536 patterns of bfloat16 survive the way through float32; NaN stays NaN."""
    values = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32).reshape(1, -1)
    outputs, metadata = serve(onnx_cases.DTYPE_IDENTITY / "bf16.onnx", {"in_bf16": values})
    np.testing.assert_array_equal(outputs["out_bf16"], values)
    signature = metadata.signatures[DEFAULT_SIGNATURE]
    assert signature.inputs["in_bf16"].dtype == signature.outputs["out_bf16"].dtype == "bfloat16"


def test_float32_is_rounded_to_bfloat16(serve: Serve) -> None:
    """A float32 that bfloat16 lacks becomes its neighbour, as the model declares."""
    value = np.array([[1.00390625]], np.float32)
    outputs, _ = serve(onnx_cases.DTYPE_IDENTITY / "bf16.onnx", {"in_bf16": value})
    np.testing.assert_array_equal(outputs["out_bf16"], value.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_missing_input_is_named(serve: Serve) -> None:
    """A request without the input is told its name, by the name in the file and not the one in the session."""
    with pytest.raises(InvalidTensor, match=r'^inputs: missing "in_bf16"; the signature takes "in_bf16"$'):
        serve(onnx_cases.DTYPE_IDENTITY / "bf16.onnx", {})
