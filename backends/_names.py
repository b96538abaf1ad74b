"""Names for what is added to a graph."""

from collections.abc import Iterable, Iterator

import onnx


class FreeNames:
    """Names that nothing in the model has: not in its graph, a subgraph or a function."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._taken = set(_names(model.graph))
        for function in model.functions:
            self._taken.update(function.input, _outputs(function.node))

    def like(self, name: str, suffix: str) -> str:
        """A new name for something that belongs to that one."""
        free = f"{name}__{suffix}"
        while free in self._taken:
            free += "_"
        self._taken.add(free)
        return free


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output))
    yield from (tensor.name for tensor in graph.initializer)
    yield from _outputs(graph.node)


def _outputs(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield from node.output
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names(attribute.g)
