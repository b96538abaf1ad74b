"""The cases' models as folders that the gateway can serve: one for every distinct declaration."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
from conformance.sagemaker.cases import Case

NOT_AS_FILES = {
    "container-023-mme-invoke-oom": "no model is out of memory at will",
    "runtime-018-overload": "no queue is full at will",
    "runtime-019-not-ready": "a model that never finishes loading",
    "runtime-021-new-session": "no backend keeps sessions",
    "stream-005-error-mid-stream": "no backend fails half way at will",
}
"""Case to why no folder makes it; tests/unit/adapters runs these with the states as objects."""

_FORMS = {
    "km": "kmeans",
    "ll-binary": "linear-learner",
    "ll-multi": "linear-learner",
    "ll-regr": "linear-learner",
    "linear-learner strict": "linear-learner",
    "xgb": "xgboost",
    "xgb-multi": "xgboost",
}


def serving_name(case: Case, names: dict[str, str]) -> str:
    """The folder's name for the case's model; the same for cases that declare the same."""
    key = json.dumps([case["model"], _form(case), _fails(case), is_signed(case)], sort_keys=True)
    return names.setdefault(key, f"conformance-{len(names)}")


def _form(case: Case) -> str:
    form = case.get("config", {}).get("response_form", "predictions")
    return _FORMS.get(form, form)


def is_signed(case: Case) -> bool:
    """Whether the case's endpoint takes signed calls only."""
    return bool(case.get("config", {}).get("sigv4") == "verify")


def _fails(case: Case) -> bool:
    return bool(case.get("config", {}).get("on invoke") == "backend raises")


def write(case: Case, folder: Path) -> None:
    """Lay the model out, unless it lies there already."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    model = case["model"]
    (folder / "model.toml").write_text("\n".join(_toml(case)), "utf-8")
    if model["name"] != "llm":
        onnx_models.write(_graph(model, _fails(case)), folder / "1")


def _toml(case: Case) -> Iterable[str]:
    if case["model"]["name"] == "llm":
        yield 'backend = "echo"\n[echo.inputs.token]\ndtype = "string"\nshape = [-1]'
        return
    yield 'labels = { green = 1, blue = 1 }\n[response]\nform = "' + _form(case) + '"'


def _graph(model: dict[str, Any], fails: bool) -> onnx.ModelProto:
    [(name, spec)] = model["inputs"].items()
    # A free dimension stays one: -1 is the cases' word for it.
    dims = [None if size < 0 else size for size in spec["shape"]]
    inputs = [onnx_models.value(name, spec["dtype"], dims)]
    if model["outputs"] == "echo":
        nodes = _failing(name) if fails else [onnx_models.node("Identity", [name], ["score"])]
        return onnx_models.model(nodes, inputs, [onnx_models.value("score", spec["dtype"], dims)], _WEIGHTS)
    nodes, outputs, weights = [onnx_models.node("Shape", [name], ["rows"], start=0, end=1)], [], list(_WEIGHTS)
    for output, described in model["described"].items():
        made = [None if size < 0 else size for size in described["shape"]]
        outputs.append(onnx_models.value(output, described["dtype"], made))
        rule = described.get("rule")
        if rule:
            nodes.append(onnx_models.node("ReduceSum", [name, "one"], [output], keepdims=0))
            continue
        weights.append(onnx_models.weight(f"{output}.rows", np.array(described["rows"], described["dtype"])))
        # One row for each of the request's; a model of one image has just one.
        ends = "one" if dims == [None] else "rows"
        nodes.append(onnx_models.node("Slice", [f"{output}.rows", "zero", ends, "zero"], [output]))
    return onnx_models.model(nodes, inputs, outputs, weights)


_WEIGHTS = [
    onnx_models.weight("zero", np.array([0])),
    onnx_models.weight("one", np.array([1])),
    onnx_models.weight("no", np.array([False])),
    onnx_models.weight("word", np.array(["x"], object)),
]


def _failing(name: str) -> list[onnx.NodeProto]:
    """A word that is read as a number: the runtime finds out when it runs."""
    return [
        onnx_models.node("Cast", [name], ["text"], to=onnx.TensorProto.STRING),
        onnx_models.node("Where", ["no", "text", "word"], ["words"]),
        onnx_models.node("Cast", ["words"], ["score"], to=onnx.TensorProto.FLOAT),
    ]
