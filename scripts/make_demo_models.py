"""Makes the demo models that are ours: configs/models/half_plus_three and configs/models/iris.

Run it in the environment of scripts/setup. The result is the same bytes every time.
"""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

MODELS = Path(__file__).resolve().parent.parent / "configs" / "models"
SPECIES = ("setosa", "versicolor", "virginica")


def half_plus_three() -> onnx.ModelProto:
    """y = x / 2 + 3, the example model of the TF Serving guide. Shapes: [batch] -> [batch]."""
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "half"], ["scaled"]),
            helper.make_node("Add", ["scaled", "three"], ["y"]),
        ],
        "half_plus_three",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])],
        [
            helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
            helper.make_tensor("three", TensorProto.FLOAT, [], [3.0]),
        ],
    )
    return _model(graph)


def iris() -> onnx.ModelProto:
    """Three species of iris from four lengths. Shapes: [batch, 4] -> [batch], [batch, 3], [batch, 3].

    The numbers are a logistic regression on standardized features, fitted with scikit-learn to its own iris data.
    """
    graph = helper.make_graph(
        [
            helper.make_node(
                "Scaler",
                ["features"],
                ["standardized"],
                domain="ai.onnx.ml",
                offset=[5.84333324, 3.05733323, 3.758, 1.19933331],
                scale=[1.21167874, 2.30196762, 0.568374276, 1.31632185],
            ),
            helper.make_node(
                "LinearClassifier",
                ["standardized"],
                ["species", "scores"],
                domain="ai.onnx.ml",
                classlabels_strings=SPECIES,
                coefficients=[
                    *(-1.07659268, 1.15977633, -1.92814064, -1.81227314),
                    *(0.589924932, -0.362635732, -0.364613831, -0.827002585),
                    *(0.486668, -0.79714036, 2.29275513, 2.63927555),
                ],
                intercepts=[-0.204638407, 2.07455897, -1.86991966],
                multi_class=1,
                post_transform="SOFTMAX",
            ),
            # A label for each score, as classification wants them...
            helper.make_node("Shape", ["scores"], ["scores_shape"]),
            helper.make_node("Expand", ["labels", "scores_shape"], ["classes"]),
        ],
        "iris",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", 4])],
        [
            helper.make_tensor_value_info("species", TensorProto.STRING, ["batch"]),
            helper.make_tensor_value_info("classes", TensorProto.STRING, ["batch", 3]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3]),
        ],
        [helper.make_tensor("labels", TensorProto.STRING, [1, 3], [name.encode() for name in SPECIES])],
    )
    return _model(graph)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    model = helper.make_model(
        graph,
        producer_name="tensorgate",
        ir_version=9,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)],
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Write both."""
    for folder, model in (("half_plus_three/00000123", half_plus_three()), ("iris/1", iris())):
        path = MODELS / folder / "model.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
