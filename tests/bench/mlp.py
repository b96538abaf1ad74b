"""The model and the bodies that every contender of the benchmark is given."""

from pathlib import Path

import numpy as np
import onnx
import orjson
from onnx import TensorProto, helper, numpy_helper

NAME = "mlp"
FEATURES, HIDDEN, CLASSES = 784, 256, 10


def write_model(models: Path) -> Path:
    """An MLP of 784-256-10 with fixed weights, laid out as a models folder. Shapes: [batch, 784] -> [batch, 10]."""
    random = np.random.default_rng(7)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.normal(0.0, 0.05, shape).astype(np.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["sums"]),
            helper.make_node("Relu", ["sums"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "w2", "b2"], ["y"]),
        ],
        NAME,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])],
        [
            weights("w1", FEATURES, HIDDEN),
            weights("b1", HIDDEN),
            weights("w2", HIDDEN, CLASSES),
            weights("b2", CLASSES),
        ],
    )
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    path = models / NAME / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(model.SerializeToString())
    return path


def predict_body(rows: int) -> bytes:
    """A row-format predict request; each float32 in its shortest text, 8 or 9 digits for most."""
    values = np.random.default_rng(rows).random((rows, FEATURES), np.float32)
    return b'{"instances": ' + orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY) + b"}"
