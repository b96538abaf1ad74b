"""The cases' models as folders that the gateway can serve: one for every distinct declaration."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
from conformance.tfserving.cases import DEFAULT_MODEL, Case, signatures

STATES_THAT_FILES_CANNOT_HOLD = {
    "ver-only-loading": "a model that never finishes loading",
    "md-loading": "a model that never finishes loading",
    "st-loading": "a model that never finishes loading",
    "st-failed": "a failure with a text of TF Serving's",
    "st-mixed": "versions that are starting and unloading",
    "col-complex64-unsupported": "ONNX Runtime has no complex tensors",
}
"""Case to why no folder makes it; tests/unit/adapters runs these with the states as objects."""

_OPERATORS = {"identity": "Identity", "sum_all": "ReduceSum"}
_CASTS = {"cast_int64": np.int64, "cast_float16": np.float16, "cast_uint16": np.uint16}


def serving_name(case: Case, names: dict[str, str]) -> str:
    """The folder's name for the case's model; the same for cases that declare the same."""
    model = case.get("model", {}) | {"error": None}
    if model.get("name", "M") != "M":
        return str(model["name"])
    key = json.dumps([signatures(case), model], sort_keys=True)
    return names.setdefault(key, f"conformance-{len(names)}")


def write(case: Case, folder: Path) -> None:
    """Lay the model out, unless it lies there already."""
    if folder.exists():
        return
    model = DEFAULT_MODEL | case.get("model", {})
    graph = _graph(signatures(case), prefix="signatures" in case)
    for version in model["versions"]:
        if version["state"] == "AVAILABLE":
            onnx_models.write(graph, folder / str(version["version"]))
    (folder / "model.toml").write_text("\n".join(_toml(case, model)), "utf-8")


def _toml(case: Case, model: dict[str, Any]) -> Iterable[str]:
    yield 'versions = "all"'
    yield f"labels = {{ {', '.join(f'{label} = {number}' for label, number in model['labels'].items())} }}"
    if "signatures" in case:
        for name, one in signatures(case).items():
            yield f"[signatures.{json.dumps(name)}]"
            yield f'method = "{one["method"]}"'
            for side in ("inputs", "outputs"):
                pairs = [f"{tensor} = {json.dumps(f'{name}.{tensor}')}" for tensor in one[side]]
                yield f"{side} = {{ {', '.join(pairs)} }}"


def _graph(declared: dict[str, dict[str, Any]], prefix: bool) -> onnx.ModelProto:
    """All signatures in one graph, their tensors told apart by the signature's name."""
    nodes, inputs, outputs = [], [], []
    weights = [onnx_models.weight("half", np.float32(0.5)), onnx_models.weight("two", np.float32(2))]
    weights += [onnx_models.weight("zero", np.array([0])), onnx_models.weight("one", np.array([1]))]
    for name, one in declared.items():
        own = f"{name}." if prefix else ""
        for tensor, spec in one["inputs"].items():
            inputs.append(onnx_models.value(own + tensor, spec["dtype"], spec["shape"]))
        for tensor, rule in one["outputs"].items():
            source = one["inputs"][rule["from"]]
            nodes += _nodes(rule["op"], own + rule["from"], own + tensor)
            outputs.append(_value(own + tensor, rule["op"], source))
        if not one["inputs"]:
            nodes.append(onnx_models.node("Identity", ["half"], [own + "constant"]))
            outputs.append(onnx_models.value(own + "constant", "float32", []))
    return onnx_models.model(nodes, inputs, outputs, weights)


def _value(name: str, operation: str, source: dict[str, Any]) -> onnx.ValueInfoProto:
    dtype = np.dtype(_CASTS[operation]).name if operation in _CASTS else source["dtype"]
    shape = [] if operation == "sum_all" else [None] if operation == "first_row" else source["shape"]
    return onnx_models.value(name, dtype, shape)


def _nodes(operation: str, source: str, name: str) -> list[onnx.NodeProto]:
    if operation == "half_plus_two":
        return [
            onnx_models.node("Mul", [source, "half"], [f"{name}.half"]),
            onnx_models.node("Add", [f"{name}.half", "two"], [name]),
        ]
    if operation == "first_row":
        return [onnx_models.node("Slice", [source, "zero", "one"], [name])]
    if operation in _CASTS:
        return [
            onnx_models.node(
                "Cast", [source], [name], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(_CASTS[operation]))
            )
        ]
    attributes = {"keepdims": 0} if operation == "sum_all" else {}
    return [onnx_models.node(_OPERATORS[operation], [source], [name], **attributes)]
