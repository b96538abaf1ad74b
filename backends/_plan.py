"""What a request of one signature means to the session, worked out once at load."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from backends._graph import Edge, Graph
from backends._ports import InputPort, OutputPort, check_wanted, gather, input_port
from backends._signatures import Wiring, wirings
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import SignatureConfig
from gateway.types import Batchable, Signature, Tensor


class Plan(Struct, frozen=True):
    """One signature's way into the session and back."""

    signature: Signature
    inputs: tuple[InputPort, ...]
    outputs: tuple[OutputPort, ...]
    fetch: tuple[str, ...]
    names: tuple[str, ...]
    plain: bool
    """No output needs more than a name."""
    stand_ins: dict[str, Any]
    """For inputs of the graph that no output of this signature depends on: a session wants them all the same."""
    named_dims: dict[str, tuple[tuple[str, int], ...]]
    """Dimension names that occur more than once: input and axis of each."""

    def feed(self, inputs: Mapping[str, Tensor]) -> tuple[dict[str, Any], int]:
        """What the session takes, and how many elements the request holds. Raises InvalidTensor."""
        feed = dict(self.stand_ins)
        return feed, gather(self.inputs, inputs, feed)

    def select(self, names: Sequence[str]) -> tuple[OutputPort, ...]:
        """The ports of the wanted outputs, in the signature's order. Raises InvalidTensor."""
        check_wanted(names, self.names)
        return tuple(port for port in self.outputs if port.name in names)

    def disagreement(self, inputs: Mapping[str, Tensor]) -> InvalidTensor | None:
        """The complaint about dimensions that share a name but not a size.

        Looked for only when a run has failed: many models broadcast where they declare equal sizes.
        """
        for symbol, places in self.named_dims.items():
            sizes = {name: inputs[name].shape[axis] for name, axis in places if name in inputs}
            if len(set(sizes.values())) > 1:
                told = ", ".join(f'"{name}" has {size}' for name, size in sizes.items())
                return InvalidTensor(f"dimension {symbol!r} must be the same in all inputs, but {told}")
        return None


def plans(graph: Graph, configs: Mapping[str, SignatureConfig]) -> dict[str, Plan]:
    """A plan for every signature. Raises LoadFailed for signatures that the graph cannot answer."""
    inputs = {name: edge.spec for name, edge in graph.inputs.items()}
    outputs = {name: edge.spec for name, edge in graph.outputs.items()}
    return {name: _plan(graph, wiring) for name, wiring in wirings(configs, inputs, outputs).items()}


def _plan(graph: Graph, wiring: Wiring) -> Plan:
    ports = tuple(_input_port(name, graph.inputs[own]) for name, own in wiring.inputs.items())
    outputs = tuple(_output_port(name, graph.outputs[own]) for name, own in wiring.outputs.items())
    return Plan(
        signature=replace(wiring.signature, batchable=_batchable(graph, wiring)),
        inputs=ports,
        outputs=outputs,
        fetch=tuple(port.inner for port in outputs),
        names=tuple(port.name for port in outputs),
        plain=all(port.plain for port in outputs),
        stand_ins=_stand_ins(graph, wiring),
        named_dims=_named_dims({name: graph.inputs[own] for name, own in wiring.inputs.items()}),
    )


def _batchable(graph: Graph, wiring: Wiring) -> Batchable:
    """As far as the graph tells: only a run shows whether rows mind each other."""
    if not graph.repeatable:
        return "never"
    edges = [graph.inputs[own] for own in wiring.inputs.values()]
    alone = len(edges) == len(graph.inputs) and not any(edge.optional or edge.form != "tensor" for edge in edges)
    edges += [graph.outputs[own] for own in wiring.outputs.values()]
    first = {edge.symbols[0] if edge.spec.shape and edge.spec.shape[0] is None else "" for edge in edges}
    return "likely" if alone and len(first) == 1 and "" not in first else "unknown"


def _input_port(name: str, edge: Edge) -> InputPort:
    return input_port(
        name,
        edge.spec,
        inner=edge.session_name,
        text=True,
        sequence=edge.form == "sequence",
        optional=edge.optional,
    )


def _output_port(name: str, edge: Edge) -> OutputPort:
    return OutputPort(name, edge.session_name, edge.spec, plain=edge.form == "tensor" and not edge.optional)


def _stand_ins(graph: Graph, wiring: Wiring) -> dict[str, Any]:
    taken = set(wiring.inputs.values())
    for name, own in wiring.outputs.items():
        lacking = [other for other in graph.needs[own] - taken if not graph.inputs[other].optional]
        if lacking:
            raise LoadFailed(
                f"signatures.{wiring.signature.name}: output {name!r} depends on the model's input {min(lacking)!r}, "
                "which the signature does not take"
            )
    return smallest(edge for own, edge in graph.inputs.items() if own not in taken)


def smallest(edges: Iterable[Edge]) -> dict[str, Any]:
    """Zeros and empty strings for those inputs, every free dimension 1; under the session's names."""
    return {edge.session_name: _smallest(edge) for edge in edges if not edge.optional}


def _smallest(edge: Edge) -> Any:
    # Most models that declare no rank take a list of numbers rather than one.
    shape = tuple(1 if size is None else size for size in ((None,) if edge.spec.shape is None else edge.spec.shape))
    array = np.full(shape, "", object) if edge.spec.dtype == "string" else np.zeros(shape, edge.spec.numpy_dtype)
    return [array[index, ...] for index in range(len(array))] if edge.form == "sequence" else array


def _named_dims(edges: Mapping[str, Edge]) -> dict[str, tuple[tuple[str, int], ...]]:
    places: dict[str, list[tuple[str, int]]] = {}
    for name, edge in edges.items():
        for axis, symbol in enumerate(edge.symbols):
            if symbol:
                places.setdefault(symbol, []).append((name, axis))
    return {symbol: tuple(found) for symbol, found in places.items() if len({name for name, _ in found}) > 1}
