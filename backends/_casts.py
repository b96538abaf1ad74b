"""Casts at a graph's edges, for the dtypes that numpy lacks and `session.run` therefore refuses.

The edge becomes float32 under a new name and a Cast joins it to the old one, so no use of the old name changes,
in subgraphs neither.
"""

from collections.abc import Iterable

import onnx
from msgspec import Struct
from onnx import TensorProto, helper

from backends._names import FreeNames

CAST_OPSET = 19
"""The first whose Cast knows the float8 family; for models that import no operators of ONNX itself."""


class InnerNames(Struct, frozen=True):
    """Old name to new name, of the edges that were rewritten."""

    inputs: dict[str, str]
    outputs: dict[str, str]


def carry_as_float32(model: onnx.ModelProto, inputs: Iterable[str], outputs: Iterable[str]) -> InnerNames:
    """Rewrite the model so that those inputs and outputs are float32; it must not be otherwise used any more."""
    graph = model.graph
    wanted, given = set(inputs), set(outputs)
    free = FreeNames(model)
    into, out_of = {}, {}
    for value in graph.input:
        if value.name in wanted:
            into[value.name] = free.like(value.name, "float32")
            graph.node.insert(0, _cast(into[value.name], value.name, value.type.tensor_type.elem_type))
            _retype(value, into[value.name])
    for value in graph.output:
        if value.name in given:
            out_of[value.name] = free.like(value.name, "float32")
            graph.node.append(_cast(value.name, out_of[value.name], TensorProto.FLOAT))
            _retype(value, out_of[value.name])
    if not any(opset.domain in ("", "ai.onnx") for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", CAST_OPSET))
    return InnerNames(into, out_of)


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], name=f"{target}/cast", to=to)


def _retype(value: onnx.ValueInfoProto, name: str) -> None:
    value.name = name
    value.type.tensor_type.elem_type = TensorProto.FLOAT
