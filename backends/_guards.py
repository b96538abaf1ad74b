"""Guards before operations with which a request could end the process: ONNX Runtime divides without looking.

A processor traps on the least integer divided by -1 (Div, Mod); STFT divides by the length of its frames. Other
divisions by zero are errors of ONNX Runtime's own.
"""

import logging
from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableSequence

import numpy as np
import onnx
from msgspec import Struct
from onnx import TensorProto, helper, numpy_helper

from backends import _elementtypes
from backends._elementtypes import ElementTypes
from backends._names import FreeNames

log = logging.getLogger("tensorgate.ort")

GUARDED = ("Div", "Mod", "STFT")

_TRAPS = (TensorProto.INT32, TensorProto.INT64)
"""Smaller integers are computed as int32, which holds the quotient; it wraps when it is stored."""
_WHERE_OPSET = 9
_EQUAL_OPSET = 11
"""The first whose Equal compares floats."""

_SIZE = numpy_helper.from_array(np.array(0, np.int64))
"""Stands for the sizes of tensors, which are never negative: exported models divide by them a lot."""
_SIZING = ("Shape", "Size")
_CHOOSING = ("Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")
"""What gives some of the values that it gets."""

Constants = ChainMap[str, TensorProto | None]
"""None hides a constant of an outer graph."""


class _Scope(Struct, frozen=True):
    """One list of nodes, and what is known where it stands."""

    nodes: MutableSequence[onnx.NodeProto]
    opset: int
    constants: Constants
    in_function: bool = False

    def suspects(self) -> Iterator[int]:
        """The places of the nodes that may trap, if their types are the wrong ones."""
        return (at for at, node in enumerate(self.nodes) if _is_suspect(node, self.constants))


def guard(model: onnx.ModelProto) -> bool:
    """Rewrite the model so that no request can trap in it; False if there was no need, and it is as it was."""
    if not any(_mentioned(nodes) for nodes in (model.graph.node, *(function.node for function in model.functions))):
        return False
    found = [(scope, places) for scope in _scopes(model) if (places := list(scope.suspects()))]
    if not found:
        return False
    types = _elementtypes.infer(model)
    if any(scope.in_function for scope, _ in found) and not _functions_may_trap(model):
        found = [(scope, places) for scope, places in found if not scope.in_function]
    free = FreeNames(model)
    # From the last place on, so that the others stay right.
    put = [_put(scope, at, types, free) for scope, places in found for at in reversed(places)]
    return any(put)


def _put(scope: _Scope, at: int, types: ElementTypes, free: FreeNames) -> bool:
    node = scope.nodes[at]
    kind = TensorProto.UNDEFINED if scope.in_function else _kind(node, types)
    if not _may_trap(node, kind):
        return False
    if scope.opset < (_WHERE_OPSET if kind else _EQUAL_OPSET):
        log.warning("%s of integers is not guarded, for opset %d lacks what it takes", node.op_type, scope.opset)
        return False
    before = _before_stft(node, free) if node.op_type == "STFT" else _before_division(node, kind, free)
    for one in reversed(before):
        scope.nodes.insert(at, one)
    return True


def _before_division(node: onnx.NodeProto, kind: int, free: FreeNames) -> list[onnx.NodeProto]:
    """Where b is -1: a / b = (a * b) / (b * b), and a % b = a % (b * b); a product wraps and does not trap.

    That is so for floats too, bit for bit, which matters where nobody knows the type.
    """
    b, y = node.input[1], node.output[0]
    before, compared = [], b
    if not kind:
        compared = free.like(y, "wide_divisor")
        before.append(helper.make_node("Cast", [b], [compared], to=TensorProto.DOUBLE))
    minus_one, inverts = free.like(y, "minus_one"), free.like(y, "inverts")
    before.append(_constant(minus_one, kind or TensorProto.DOUBLE, -1))
    before.append(helper.make_node("Equal", [compared, minus_one], [inverts]))
    for place, name in ((1, "divisor"), (0, "dividend")):
        if place or node.op_type == "Div":
            product, chosen = free.like(y, f"{name}_product"), free.like(y, name)
            before.append(helper.make_node("Mul", [node.input[place], b], [product]))
            before.append(helper.make_node("Where", [inverts, product, node.input[place]], [chosen]))
            node.input[place] = chosen
    return before


def _before_stft(node: onnx.NodeProto, free: FreeNames) -> list[onnx.NodeProto]:
    """A length of 0 becomes one that is refused."""
    y, (_, _, window, length) = node.output[0], _stft_inputs(node)
    given, zero, minus_one = free.like(y, "length"), free.like(y, "zero"), free.like(y, "minus_one")
    none, chosen = free.like(y, "no_length"), free.like(y, "frame_length")
    node.input.extend([""] * (4 - len(node.input)))
    node.input[3] = chosen
    return [
        helper.make_node("Cast", [length], [given], to=TensorProto.INT64)
        if length
        else helper.make_node("Size", [window], [given]),
        _constant(zero, TensorProto.INT64, 0),
        _constant(minus_one, TensorProto.INT64, -1),
        helper.make_node("Equal", [given, zero], [none]),
        helper.make_node("Where", [none, minus_one, given], [chosen]),
    ]


def _constant(name: str, kind: int, value: int) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, kind, [], [value]))


# Which nodes need one...


def _is_suspect(node: onnx.NodeProto, constants: Constants) -> bool:
    if not _is_guarded(node):
        return False
    if node.op_type == "STFT":
        _, _, window, length = _stft_inputs(node)
        known = constants.get(length or window)
        return known is None or 0 in (known.dims if not length else _array(known))
    if any(attribute.name == "fmod" and attribute.i for attribute in node.attribute):
        return False
    return _may_be(node.input[1], -1, constants) and _may_be(node.input[0], None, constants)


def _stft_inputs(node: onnx.NodeProto) -> tuple[str, str, str, str]:
    signal, step, window, length = (*node.input, "", "")[:4]
    return signal, step, window, length


def _may_be(name: str, poison: int | None, constants: Constants) -> bool:
    """Whether an operand may have that value; None stands for its type's least."""
    tensor = constants.get(name)
    if tensor is None:
        return True
    if tensor.data_type not in _TRAPS:
        return False
    array = _array(tensor)
    return bool((array == (np.iinfo(array.dtype).min if poison is None else poison)).any())


def _array(tensor: TensorProto) -> np.ndarray:
    return np.asarray(numpy_helper.to_array(tensor))


def _kind(node: onnx.NodeProto, types: ElementTypes) -> int:
    """The type of a division's operands and result, which have the same."""
    return next((types[name] for name in (*node.input, *node.output) if types.get(name)), TensorProto.UNDEFINED)


def _may_trap(node: onnx.NodeProto, kind: int) -> bool:
    return node.op_type == "STFT" or kind == TensorProto.UNDEFINED or kind in _TRAPS


def _functions_may_trap(model: onnx.ModelProto) -> bool:
    """Whether there is a suspect that is not known to be harmless, once all functions are put where they are called."""
    flat = _elementtypes.inlined(model)
    if flat is None:
        return True
    return any(
        _may_trap(scope.nodes[at], _kind(scope.nodes[at], flat[1]))
        for scope in _scopes(flat[0])
        for at in scope.suspects()
    )


# Where nodes stand...


def _is_guarded(node: onnx.NodeProto) -> bool:
    return node.op_type in GUARDED and node.domain in ("", "ai.onnx")


def _mentioned(nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(_is_guarded(node) or any(_mentioned(inner.node) for inner in _subgraphs(node)) for node in nodes)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    return (attribute.g for attribute in node.attribute if attribute.HasField("g"))


def _scopes(model: onnx.ModelProto) -> Iterator[_Scope]:
    opset = _opset(model.opset_import)
    yield from _graph_scopes(model.graph, opset, ChainMap(), in_function=False)
    for function in model.functions:
        constants: Constants = ChainMap(_defined(function.node))
        yield from _node_scopes(function.node, _opset(function.opset_import), constants, in_function=True)


def _graph_scopes(graph: onnx.GraphProto, opset: int, outer: Constants, in_function: bool) -> Iterator[_Scope]:
    own: dict[str, TensorProto | None] = {value.name: None for value in graph.input}
    own.update((tensor.name, _readable(tensor)) for tensor in graph.initializer)
    constants = outer.new_child(own | _defined(graph.node))
    yield from _node_scopes(graph.node, opset, constants, in_function)


def _node_scopes(
    nodes: MutableSequence[onnx.NodeProto], opset: int, constants: Constants, in_function: bool
) -> Iterator[_Scope]:
    yield _Scope(nodes, opset, constants, in_function)
    for node in nodes:
        for graph in _subgraphs(node):
            yield from _graph_scopes(graph, opset, constants, in_function)


def _defined(nodes: Iterable[onnx.NodeProto]) -> dict[str, TensorProto | None]:
    """What is known of the values that the nodes make; they stand in topological order."""
    known: dict[str, TensorProto | None] = {}
    for node in nodes:
        found = _constant_of(node)
        operator = "" if node.domain else node.op_type
        if operator in _SIZING or (operator in _CHOOSING and known.get(node.input[0]) is _SIZE):
            found = _SIZE
        known.update((name, found) for name in node.output)
    return known


def _constant_of(node: onnx.NodeProto) -> TensorProto | None:
    if node.op_type != "Constant":
        return None
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.HasField("t"):
            return _readable(attribute.t)
        if attribute.name in ("value_int", "value_ints"):
            return numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), np.int64))
        if attribute.name in ("value_float", "value_floats"):
            return numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), np.float32))
    return None


def _readable(tensor: TensorProto) -> TensorProto | None:
    """None for data in another file, which is not read here."""
    return None if tensor.data_location == TensorProto.EXTERNAL else tensor


def _opset(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    return next((one.version for one in imports if one.domain in ("", "ai.onnx")), 0)
