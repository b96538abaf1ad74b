"""The ONNX backend tests in tests/data/onnx-conformance, with tensors as the gateway carries them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

NODE_TESTS = Path(__file__).parent / "data" / "onnx-conformance" / "node"
DTYPE_IDENTITY = Path(__file__).parent / "data" / "dtype-identity"

RELATIVE_TOLERANCE = 1e-3
"""Of floats, as in ONNX's own runner."""
ABSOLUTE_TOLERANCE = 1e-7
BFLOAT16_TOLERANCE = 2**-6
"""Two units in the last place; ONNX's own runner again."""

UNCARRIED = "a value that no tensor holds: a sequence of tensors of different shapes, or an optional without a value"

RAGGED = (
    "test_loop13_seq",
    "test_loop16_seq_none",
    "test_sequence_insert_at_back",
    "test_sequence_insert_at_front",
    "test_sequence_map_add_2_sequences",
    "test_sequence_map_extract_shapes",
    "test_sequence_map_identity_1_sequence_1_tensor",
    "test_sequence_map_identity_2_sequences",
)
"""Tests whose sequences hold tensors of different shapes."""

NEWER: dict[str, str] = {
    "test_attention_local_window_ext_cache_float16_mask": "Unrecognized attribute",
    "test_attention_local_window_ext_cache_rank2_mask": "Unrecognized attribute",
    "test_causal_conv_with_state_b1_c1_degenerate": "Opset 27",
    "test_causal_conv_with_state_decode_step": "Opset 27",
    "test_causal_conv_with_state_fp16": "Opset 27",
    "test_celu_bfloat16": "IR version: 14",
    "test_celu_float16": "IR version: 14",
    "test_compress_bfloat16": "IR version: 14",
    "test_einsum_batch_matmul_bfloat16": "IR version: 14",
    "test_linear_attention_decode_step": "Opset 27",
    "test_linear_attention_fp16": "Opset 27",
    "test_linear_attention_gated_delta_mqa": "Opset 27",
    "test_onehot_out_of_range_indices": "IR version: 14",
    "test_range_float16_type_positive_delta": "Opset 27",
    "test_reversesequence_bfloat16": "IR version: 14",
    "test_unique_bfloat16_sorted_without_axis": "IR version: 14",
}
"""Tests that ONNX Runtime 1.31 is too old for, and what its refusal says."""


class Case(NamedTuple):
    """One test: a model, its inputs and the recorded outputs."""

    name: str
    model: Path
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    dtypes: dict[str, str]
    """The dtypes of the outputs, as recorded."""


def names() -> list[str]:
    """The names of all tests."""
    return sorted(folder.name for folder in NODE_TESTS.iterdir() if folder.is_dir())


def answerable() -> list[str]:
    """The names of the tests that every supported ONNX Runtime answers in tensors."""
    return [name for name in names() if name not in RAGGED and name not in NEWER]


def read(name: str) -> Case:
    """The test of that name. Raises ValueError if tensors cannot carry its values."""
    folder = NODE_TESTS / name
    model = onnx.load_model(folder / "model.onnx", load_external_data=False)
    data = folder / "test_data_set_0"
    inputs = {value.name: _read(data / f"input_{i}.pb", value.type) for i, value in enumerate(model.graph.input)}
    outputs = {value.name: _read(data / f"output_{i}.pb", value.type) for i, value in enumerate(model.graph.output)}
    return Case(
        name,
        folder / "model.onnx",
        {name: _as_tensor(value) for name, value in inputs.items()},
        {name: _as_tensor(value) for name, value in outputs.items()},
        {name: getattr(value, "dtype", np.dtype(object)).name for name, value in outputs.items()},
    )


def assert_same(expected: np.ndarray, actual: np.ndarray, dtype: str = "") -> None:
    """`actual` is `expected`: exactly, but for floats, which may differ as much as ONNX's own runner lets them."""
    assert expected.dtype == actual.dtype
    assert expected.shape == actual.shape
    if expected.dtype.kind == "f":
        relative = BFLOAT16_TOLERANCE if dtype == "bfloat16" else RELATIVE_TOLERANCE
        np.testing.assert_allclose(actual, expected, rtol=relative, atol=ABSOLUTE_TOLERANCE)
    else:
        np.testing.assert_array_equal(actual, expected)


def _read(file: Path, kind: onnx.TypeProto) -> Any:
    data = file.read_bytes()
    match kind.WhichOneof("value"):
        case "tensor_type":
            return numpy_helper.to_array(onnx.TensorProto.FromString(data))
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        case "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    raise ValueError(f"{file.name}: neither a tensor nor a sequence nor an optional")


def _as_tensor(value: Any) -> np.ndarray:
    if value is None or (isinstance(value, list) and len({item.shape for item in value}) > 1):
        raise ValueError(UNCARRIED)
    if isinstance(value, list):
        return np.stack([_as_tensor(item) for item in value]) if value else np.empty((0,), np.float32)
    if value.dtype.kind in "SUO":
        texts = [item.decode() if isinstance(item, bytes) else item for item in value.ravel().tolist()]
        return np.array(texts, object).reshape(value.shape)
    # bfloat16 and the float8 family are ml_dtypes' own, and are carried as float32.
    return value if value.dtype.isbuiltin == 1 else value.astype(np.float32)
