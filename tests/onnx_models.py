"""Small ONNX models, built in a line or two."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 19, 9
ML_OPSET = 3

Dims = Sequence[int | str | None] | None

_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8e5m2": TensorProto.FLOAT8E5M2,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
    **{
        f"{sign}int{bits}": TensorProto.DataType.Value(f"{sign}int{bits}".upper())
        for sign in ("", "u")
        for bits in (4, 8, 16, 32, 64)
    },
    "complex64": TensorProto.COMPLEX64,
}


def tensor_type(dtype: str, dims: Dims) -> onnx.TypeProto:
    """The type of a tensor; None for `dims` means unknown rank."""
    return helper.make_tensor_type_proto(_TYPES[dtype], dims)


def sequence_type(element: onnx.TypeProto) -> onnx.TypeProto:
    """The type of a sequence."""
    return helper.make_sequence_type_proto(element)


def map_type(value: onnx.TypeProto, key: int = TensorProto.INT64) -> onnx.TypeProto:
    """The type of a map."""
    return helper.make_map_type_proto(key, value)


def value(name: str, dtype: str | onnx.TypeProto, dims: Dims = ("N",)) -> onnx.ValueInfoProto:
    """A named input or output."""
    return helper.make_value_info(name, tensor_type(dtype, dims) if isinstance(dtype, str) else dtype)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    """One operation; attribute `domain` picks another set of operators."""
    return helper.make_node(operator, inputs, outputs, **attributes)


def weight(name: str, array: Any) -> onnx.TensorProto:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(array), name)


def external(name: str, array: np.ndarray, location: str) -> onnx.TensorProto:
    """An initializer whose data lies in another file."""
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value=str(array.nbytes))
    return tensor


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """The whole model."""
    graph = helper.make_graph(nodes, "test", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def identity(dtype: str = "float32", dims: Dims = ("N",), name: str = "x", output: str = "y") -> onnx.ModelProto:
    """One input, given back."""
    return model([node("Identity", [name], [output])], [value(name, dtype, dims)], [value(output, dtype, dims)])


def lookup(size: int) -> onnx.ModelProto:
    """The numbers 0, 1, ... of a list, by their places; a place outside of it fails the run, not the load."""
    return model(
        [node("Gather", ["w", "x"], ["y"])], [value("x", "int64")], [value("y", "float32")], [weight("w", floats(size))]
    )


def write(model: onnx.ModelProto | bytes, folder: Path) -> Path:
    """Put the model into the folder as model.onnx; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = model if isinstance(model, bytes) else model.SerializeToString()
    (folder / "model.onnx").write_bytes(data)
    return folder


def floats(*shape: int) -> np.ndarray:
    """Different float32 numbers of that shape."""
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
