"""No file outside the model's own folder is opened, whatever a model file asks for.

ONNX Runtime checks external data too, against the folder that the file lies in; older releases did not.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from gateway.errors import LoadFailed


def model_file(directory: Path, root: Path, name: str) -> Path:
    """The folder's file of that name, as a real path. Raises LoadFailed if it is missing or lies outside `root`."""
    file = directory / name
    if not os.path.lexists(file):
        raise LoadFailed(f"there is no {name} in the version's folder{_instead(directory, name)}")
    return _inside(file, root, name)


def _instead(directory: Path, name: str) -> str:
    """What of that kind the folder does hold."""
    kind = Path(name).suffix
    found = sorted(one for one in os.listdir(directory) if one.endswith(kind) and not one.startswith("."))
    return f"; the folder holds {', '.join(found[:3])}, which is not read under that name" if found else ""


def check_external_data(model: onnx.ModelProto, directory: Path, root: Path) -> None:
    """Raises LoadFailed if a tensor anywhere in the model keeps its data in a file outside `root`."""
    seen = set()
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            if location not in seen:
                seen.add(location)
                _check(location, tensor.name, directory, root)


def _check(location: str, tensor: str, directory: Path, root: Path) -> None:
    if not location or "\0" in location:
        raise LoadFailed(f"tensor {tensor!r} does not say which file its data is in")
    if os.path.isabs(location):
        raise LoadFailed(f"tensor {tensor!r}: the location of its external data is absolute; it must be relative")
    _inside(directory / location, root, f"the external data of tensor {tensor!r}")


def _inside(file: Path, root: Path, what: str) -> Path:
    try:
        real = file.resolve(strict=True)
    except (OSError, RuntimeError):
        # RuntimeError: a loop of links, before Python 3.13.
        raise LoadFailed(f"{what}: the file is missing, or a link that leads nowhere") from None
    if not real.is_relative_to(root.resolve()):
        raise LoadFailed(f"{what} lies outside the model's own folder")
    if not real.is_file():
        raise LoadFailed(f"{what} is not a regular file")
    return real


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _attribute_tensors(function.attribute_proto)
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        yield from _attribute_tensors(node.attribute)


def _attribute_tensors(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in attributes:
        yield from attribute.tensors
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("g"):
            yield from _graph_tensors(attribute.g)
        for graph in attribute.graphs:
            yield from _graph_tensors(graph)
        if attribute.HasField("sparse_tensor"):
            yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
        for sparse in attribute.sparse_tensors:
            yield from (sparse.values, sparse.indices)
