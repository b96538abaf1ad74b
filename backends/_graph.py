"""What a model.onnx declares of its inputs and outputs.

Read from the ModelProto: to a session, rank 0 and unknown rank look the same.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import onnx
from msgspec import Struct

from backends import _casts, _chance, _confine, _guards
from backends._sizes import sized_by_values
from gateway.errors import LoadFailed
from gateway.types import FLOAT32_CARRIED, TensorSpec

MODEL_FILE = "model.onnx"

Form = Literal["tensor", "sequence", "map", "maps"]

_DTYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BOOL: "bool",
    onnx.TensorProto.STRING: "string",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.UINT16: "uint16",
    onnx.TensorProto.UINT32: "uint32",
    onnx.TensorProto.UINT64: "uint64",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.FLOAT8E4M3FN: "float8e4m3fn",
    onnx.TensorProto.FLOAT8E4M3FNUZ: "float8e4m3fnuz",
    onnx.TensorProto.FLOAT8E5M2: "float8e5m2",
    onnx.TensorProto.FLOAT8E5M2FNUZ: "float8e5m2fnuz",
}

_DATA_TYPES: dict[int, str] = {value: name.lower() for name, value in onnx.TensorProto.DataType.items()}


class Edge(Struct, frozen=True):
    """An input or an output of the graph."""

    spec: TensorSpec
    """Of the tensor that carries it: a sequence has one more leading dimension, a sequence of maps is [rows, keys]."""
    symbols: tuple[str, ...] = ()
    """The names of the dimensions, "" where there is none."""
    form: Form = "tensor"
    optional: bool = False
    inner: str = ""
    """Its name in the session, where that is not its own."""

    @property
    def session_name(self) -> str:
        """What the session knows it by."""
        return self.inner or self.spec.name


class Graph(Struct, frozen=True):
    """The inputs and outputs of a model file, in its order."""

    inputs: dict[str, Edge]
    outputs: dict[str, Edge]
    needs: dict[str, frozenset[str]]
    """The inputs that each output depends on."""
    repeatable: bool = True
    """Nothing in it draws random numbers."""
    rewritten: bytes | None = None
    """The model with Casts at its edges or guards in it, where a session had better not take the file as it is."""
    sized_by_values: bool = False
    """Whether a client's values decide how much memory a run takes."""


def read(directory: Path, root: Path) -> Graph:
    """The graph of the folder's model.onnx. Raises LoadFailed, also when a file it needs lies outside `root`."""
    model = _parse(_confine.model_file(directory, root, MODEL_FILE))
    _confine.check_external_data(model, directory, root)
    defaults = {tensor.name for tensor in model.graph.initializer}
    defaults |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    # An initializer that is listed as an input too, as IR 3 demands, is a weight to everyone but its author.
    inputs = {value.name: _edge(value, "input") for value in model.graph.input if value.name not in defaults}
    outputs = {value.name: _edge(value, "output") for value in model.graph.output}
    needs = _needs(model.graph, inputs, outputs)
    carried = [edge.spec.name for edge in (*inputs.values(), *outputs.values()) if edge.spec.dtype in FLOAT32_CARRIED]
    repeatable = _chance.repeatable(model)
    sized = sized_by_values(model.graph)
    guarded = _guards.guard(model)
    if not carried:
        return Graph(inputs, outputs, needs, repeatable, model.SerializeToString() if guarded else None, sized)
    inner = _casts.carry_as_float32(model, inputs.keys() & carried, outputs.keys() & carried)
    return Graph(
        {name: _renamed(edge, inner.inputs) for name, edge in inputs.items()},
        {name: _renamed(edge, inner.outputs) for name, edge in outputs.items()},
        needs,
        repeatable,
        model.SerializeToString(),
        sized,
    )


def _parse(file: Path) -> onnx.ModelProto:
    try:
        model = onnx.load_model(file, format="protobuf", load_external_data=False)
    except OSError as error:
        raise LoadFailed(f"{MODEL_FILE} cannot be read: {error.strerror}") from None
    except MemoryError:
        raise
    except Exception:
        # protobuf's DecodeError, which has moved between its modules.
        raise LoadFailed(f"{MODEL_FILE} is not an ONNX model, or is damaged or cut short") from None
    if not model.graph.output:
        raise LoadFailed(f"{MODEL_FILE} holds no graph with outputs; it is not an ONNX model, or is cut short")
    return model


def _renamed(edge: Edge, inner: dict[str, str]) -> Edge:
    name = inner.get(edge.spec.name, "")
    return Edge(edge.spec, edge.symbols, edge.form, edge.optional, name) if name else edge


# What one edge is...


def _edge(value: onnx.ValueInfoProto, side: Literal["input", "output"]) -> Edge:
    kind, optional = value.type, False
    if kind.WhichOneof("value") == "optional_type":
        kind, optional = kind.optional_type.elem_type, True
    match kind.WhichOneof("value"):
        case "tensor_type":
            shape, symbols = _shape(kind.tensor_type)
            dtype = _dtype(kind.tensor_type, value.name, side, in_tensor=not optional)
            return Edge(TensorSpec(value.name, dtype, shape), symbols, "tensor", optional)
        case "sequence_type":
            return _sequence(value.name, kind.sequence_type.elem_type, side, optional)
        case "map_type" if side == "output":
            dtype = _map_dtype(kind.map_type, value.name)
            return Edge(TensorSpec(value.name, dtype, (None,)), ("",), "map", optional)
        case other:
            raise _refusal(value.name, side, (other or "of unknown type").replace("_type", "").replace("_", " "))


def _sequence(name: str, element: onnx.TypeProto, side: Literal["input", "output"], optional: bool) -> Edge:
    match element.WhichOneof("value"):
        case "tensor_type":
            dtype = _dtype(element.tensor_type, name, side, in_tensor=False)
            shape, symbols = _shape(element.tensor_type)
            if shape is not None:
                shape, symbols = (None, *shape), ("", *symbols)
            return Edge(TensorSpec(name, dtype, shape), symbols, "sequence", optional)
        case "map_type" if side == "output":
            dtype = _map_dtype(element.map_type, name)
            return Edge(TensorSpec(name, dtype, (None, None)), ("", ""), "maps", optional)
        case other:
            raise _refusal(name, side, f"sequence of {(other or 'unknown type').replace('_type', '')}s")


def _map_dtype(kind: onnx.TypeProto.Map, name: str) -> str:
    if kind.value_type.WhichOneof("value") != "tensor_type":
        raise _refusal(name, "output", "map of something else than numbers or strings")
    return _dtype(kind.value_type.tensor_type, name, "output", in_tensor=False)


def _dtype(kind: onnx.TypeProto.Tensor, name: str, side: str, in_tensor: bool) -> str:
    dtype = _DTYPES.get(kind.elem_type)
    if dtype is None or (dtype in FLOAT32_CARRIED and not in_tensor):
        word = _DATA_TYPES.get(kind.elem_type, "of an unknown dtype")
        raise _refusal(name, side, word if in_tensor else f"sequence, map or optional of {word}")
    return dtype


def _refusal(name: str, side: str, kind: str) -> LoadFailed:
    return LoadFailed(f"{side} {name!r} is {kind}, which cannot be carried as a tensor here")


def _shape(kind: onnx.TypeProto.Tensor) -> tuple[tuple[int | None, ...] | None, tuple[str, ...]]:
    if not kind.HasField("shape"):
        return None, ()
    dims = kind.shape.dim
    # A negative size is how some exporters write a free dimension, and ONNX Runtime reads it so.
    fixed = tuple(dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in dims)
    return fixed, tuple(dim.dim_param for dim in dims)


# Which inputs an output depends on...


def _needs(graph: onnx.GraphProto, inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, frozenset[str]]:
    """Nodes stand in topological order, so one pass does."""
    nothing: frozenset[str] = frozenset()
    reach = {name: frozenset((name,)) for name in inputs}
    for node in graph.node:
        found = nothing.union(*(reach.get(name, nothing) for name in _reads(node)))
        if found:
            # An output that nobody wants has an empty name, as has an input that is left out.
            reach.update((name, found) for name in node.output if name)
    return {name: reach.get(name, nothing) for name in outputs}


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The values a node uses, those that its subgraphs take from outside included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)
            yield from (value.name for value in graph.output)
