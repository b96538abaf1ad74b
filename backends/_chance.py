"""Whether a graph gives the same answer to the same question every time."""

from collections.abc import Iterable, Iterator

import onnx

_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
_RANDOM |= {"Sampling", "BiasDropout"}


def repeatable(model: onnx.ModelProto) -> bool:
    """No node of it draws random numbers, or does so only in training, which it does not switch on."""
    graphs = (model.graph.node, *(function.node for function in model.functions))
    return not any(_draws(node) for nodes in graphs for node in _nodes(nodes))


def _draws(node: onnx.NodeProto) -> bool:
    if node.op_type in _RANDOM:
        return True
    return node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] != ""


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Those inside loops and branches included."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(graph.node)
