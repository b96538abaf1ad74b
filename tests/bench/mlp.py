"""The model and the bodies that every contender of the benchmark is given."""

from pathlib import Path

import numpy as np
import onnx
import orjson
from onnx import TensorProto, helper, numpy_helper

NAME = "mlp"
FEATURES, HIDDEN, CLASSES = 784, 256, 10


def parameters() -> dict[str, np.ndarray]:
    """The fixed weights. Shapes: [in, out] for w1 and w2, [out] for b1 and b2."""
    random = np.random.default_rng(7)
    shapes = {"w1": (FEATURES, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}
    return {name: random.normal(0.0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}


def write_model(models: Path) -> Path:
    """An MLP of 784-256-10, laid out as a models folder. Shapes: [batch, 784] -> [batch, 10]."""
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["sums"]),
            helper.make_node("Relu", ["sums"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "w2", "b2"], ["y"]),
        ],
        NAME,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(values, name) for name, values in parameters().items()],
    )
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    path = models / NAME / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(model.SerializeToString())
    return path


def predict_body(rows: int) -> bytes:
    """A row-format predict request; each float32 in its shortest text, 8 or 9 digits for most."""
    return b'{"instances": ' + orjson.dumps(_rows(rows), option=orjson.OPT_SERIALIZE_NUMPY) + b"}"


def _rows(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).random((rows, FEATURES), np.float32)


def seldon_body(rows: int) -> bytes:
    """The same rows as Seldon's data.ndarray."""
    return b'{"data": {"ndarray": ' + orjson.dumps(_rows(rows), option=orjson.OPT_SERIALIZE_NUMPY) + b"}}"


def v2_body(rows: int) -> bytes:
    """The same rows as a v2 request, all in JSON."""
    values = orjson.dumps(_rows(rows).ravel(), option=orjson.OPT_SERIALIZE_NUMPY)
    head = b'{"inputs": [{"name": "x", "shape": [%d, %d], "datatype": "FP32", "data": ' % (rows, FEATURES)
    return head + values + b"}]}"
