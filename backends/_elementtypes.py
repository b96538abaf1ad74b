"""The element types of the values inside a model, as far as ONNX can tell them."""

import logging
from collections.abc import Iterable, Mapping

import onnx
from onnx import TensorProto, helper, inliner, shape_inference

log = logging.getLogger("tensorgate.ort")

ElementTypes = Mapping[str, int]
"""Name to type, TensorProto.UNDEFINED where subgraphs have different values of that name."""

_WEIGHT_BYTES = 1024
"""A larger tensor is not copied."""


def infer(model: onnx.ModelProto) -> ElementTypes:
    """The types of everything in the graph and its subgraphs; not in functions, where they vary from call to call."""
    return _infer(_bare(model))[1]


def inlined(model: onnx.ModelProto) -> tuple[onnx.ModelProto, ElementTypes] | None:
    """The model without its large weights, its functions put where they are called; None if that fails."""
    try:
        return _infer(inliner.inline_local_functions(_bare(model)))
    except Exception as error:
        log.info("the model's functions cannot be looked into: %s", error)
        return None


def _infer(model: onnx.ModelProto) -> tuple[onnx.ModelProto, ElementTypes]:
    try:
        model = shape_inference.infer_shapes(model)
    except Exception as error:
        log.info("the types inside the model are not known: %s", error)
    types: dict[str, int] = {}
    _gather(model.graph, types)
    return model, types


def _gather(graph: onnx.GraphProto, types: dict[str, int]) -> None:
    found = [(one.name, one.type.tensor_type.elem_type) for one in (*graph.input, *graph.output, *graph.value_info)]
    for name, kind in (*found, *((tensor.name, tensor.data_type) for tensor in graph.initializer)):
        types[name] = kind if types.get(name, kind) == kind else TensorProto.UNDEFINED
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _gather(attribute.g, types)


# A copy without weights...


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    graph = _bare_graph(model.graph)
    return onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, graph=graph, functions=model.functions
    )


def _bare_graph(graph: onnx.GraphProto) -> onnx.GraphProto:
    bare = onnx.GraphProto(name=graph.name, input=graph.input, output=graph.output, value_info=graph.value_info)
    _add_tensors(bare, graph.initializer)
    for node in graph.node:
        if tensor := _large_constant(node):
            _add_tensors(bare, [tensor], node.output[0])
            continue
        copy = bare.node.add(op_type=node.op_type, domain=node.domain, overload=node.overload, name=node.name)
        copy.input.extend(node.input)
        copy.output.extend(node.output)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                copy.attribute.add(name=attribute.name, type=attribute.type, g=_bare_graph(attribute.g))
            else:
                copy.attribute.append(attribute)
    return bare


def _add_tensors(bare: onnx.GraphProto, tensors: Iterable[onnx.TensorProto], name: str = "") -> None:
    """The tensors themselves where they are small; else what a value of that type is declared as."""
    for tensor in tensors:
        if not _is_large(tensor):
            bare.initializer.append(tensor)
        else:
            bare.value_info.append(helper.make_tensor_value_info(name or tensor.name, tensor.data_type, tensor.dims))


def _large_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant":
        return None
    return next(
        (attribute.t for attribute in node.attribute if attribute.HasField("t") and _is_large(attribute.t)), None
    )


def _is_large(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL or tensor.ByteSize() > _WEIGHT_BYTES
