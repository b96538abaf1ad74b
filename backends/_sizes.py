"""Graphs whose tensors are as large as a client says: sizes that come from the values of inputs, not from shapes.

Source: the ONNX operators, of which input says how large the output is.
"""

import onnx

_SIZED_BY = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Range": (0, 1, 2),
    "Tile": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "Resize": (2, 3),
    "Upsample": (1,),
    "HannWindow": (0,),
    "HammingWindow": (0,),
    "BlackmanWindow": (0,),
    "Loop": (0,),
}
"""Operator -> the inputs that say how large its outputs are, or how often they grow."""
_FORGETS = frozenset({"Shape", "Size"})
"""What they give depends on shapes only, however large the values are."""


def sized_by_values(graph: onnx.GraphProto) -> bool:
    """Whether values of the graph's inputs decide how much memory a run takes; nodes stand in topological order."""
    weights = {tensor.name for tensor in graph.initializer}
    return _scan(graph, {value.name for value in graph.input} - weights)


def _scan(graph: onnx.GraphProto, told: set[str]) -> bool:
    """`told` are the values that a client has a hand in."""
    for node in graph.node:
        sizing = [node.input[at] for at in _SIZED_BY.get(node.op_type, ()) if at < len(node.input)]
        if any(name in told for name in sizing):
            return True
        for attribute in node.attribute:
            for inner in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                # NOTE: what an inner graph is given counts as the client's, which errs on the safe side.
                if _scan(inner, told | {value.name for value in inner.input}):
                    return True
        if node.op_type not in _FORGETS and any(name in told for name in node.input):
            told = told | {name for name in node.output if name}
    return False
