"""Writes a Llama-like decoder with random weights, in ONNX Runtime GenAI's layout: for measuring, it says nothing."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from msgspec import Struct
from onnx import TensorProto, helper

MICROSOFT = "com.microsoft"


class Shape(Struct, frozen=True):
    """The size of a decoder."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int

    @property
    def head_size(self) -> int:
        """Numbers of one head."""
        return self.hidden // self.heads


SMOLLM = Shape(layers=30, hidden=576, inner=1536, heads=9, kv_heads=3, vocabulary=49152, context=2048)
"""SmolLM2-135M."""


def write(folder: Path, tokenizer: Path, shape: Shape) -> None:
    """The folder of a model; its tokenizer is that of another, filled up with tokens that have some text."""
    described = json.loads((tokenizer / "tokenizer.json").read_text("utf-8"))
    known = described["model"]["vocab"]
    known.update({f"~{token}": token for token in range(len(known), shape.vocabulary)})
    (folder / "tokenizer.json").write_text(json.dumps(described))
    config = {
        "model": {
            "context_length": shape.context,
            "eos_token_id": 2,
            "vocab_size": shape.vocabulary,
            "decoder": {
                "filename": "model.onnx",
                "head_size": shape.head_size,
                "num_hidden_layers": shape.layers,
                "num_key_value_heads": shape.kv_heads,
            },
        },
        "search": {"past_present_share_buffer": True},
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    onnx.save_model(_Graph(shape).model(), folder / "model.onnx")


class _Graph:
    """A graph in the making."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._random = np.random.Generator(np.random.PCG64(7))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs = [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]),
        ]
        self._outputs: list[onnx.ValueInfoProto] = []

    def model(self) -> onnx.ModelProto:
        """Embedding, layers, and the logits of every token."""
        shape = self._shape
        self._lengths()
        self._weight("embedding", shape.vocabulary, shape.hidden)
        state = self._node("Gather", ["embedding", "input_ids"], "embedded")
        for layer in range(shape.layers):
            state = self._layer(layer, state)
        state = self._normed(state, "final")
        self._node("MatMul", [state, self._weight("head", shape.hidden, shape.vocabulary)], "logits")
        logits = ["batch", "tokens", shape.vocabulary]
        self._outputs.insert(0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits))
        graph = helper.make_graph(self._nodes, "decoder", self._inputs, self._outputs, self._weights)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _lengths(self) -> None:
        """What GroupQueryAttention wants of the mask, and the angles of its rotation."""
        half, context = self._shape.head_size // 2, self._shape.context
        angles = np.outer(np.arange(context), 1e4 ** -(np.arange(half) / half))
        self._constant("cosines", np.cos(angles).astype(np.float32))
        self._constant("sines", np.sin(angles).astype(np.float32))
        self._constant("one", np.array([1], np.int64))
        summed = self._node("ReduceSum", ["attention_mask", "one"], "summed")
        last = self._node("Sub", [summed, "one"], "last")
        self._node("Cast", [last], "lengths", to=TensorProto.INT32)
        self._constant("second", np.array(1, np.int64))
        total = self._node("Gather", [self._node("Shape", ["attention_mask"], "mask_shape"), "second"], "total_long")
        self._node("Cast", [total], "total_length", to=TensorProto.INT32)

    def _layer(self, layer: int, state: str) -> str:
        shape = self._shape
        width = shape.kv_heads * shape.head_size
        normed = self._normed(state, f"attention.{layer}")
        query, key, value = (
            self._node("MatMul", [normed, self._weight(f"{part}.{layer}", shape.hidden, size)], f"{part}_of.{layer}")
            for part, size in (("q", shape.hidden), ("k", width), ("v", width))
        )
        caches = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        presents = [f"present.{layer}.{part}" for part in ("key", "value")]
        cache = ["batch", shape.kv_heads, "past", shape.head_size]
        for past, present in zip(caches, presents, strict=True):
            self._inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, cache))
            self._outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, cache))
        names = [query, key, value, *caches, "lengths", "total_length", "cosines", "sines"]
        attended = f"attended.{layer}"
        heads = {"num_heads": shape.heads, "kv_num_heads": shape.kv_heads, "do_rotary": 1}
        node = helper.make_node("GroupQueryAttention", names, [attended, *presents], domain=MICROSOFT, **heads)
        self._nodes.append(node)
        output = self._weight(f"o.{layer}", shape.hidden, shape.hidden)
        state = self._added(state, self._node("MatMul", [attended, output], f"o_of.{layer}"), f"a.{layer}")
        normed = self._normed(state, f"inner.{layer}")
        gate = self._node(
            "MatMul", [normed, self._weight(f"gate.{layer}", shape.hidden, shape.inner)], f"gate_of.{layer}"
        )
        up = self._node("MatMul", [normed, self._weight(f"up.{layer}", shape.hidden, shape.inner)], f"up_of.{layer}")
        opened = self._node("Mul", [gate, self._node("Sigmoid", [gate], f"sigmoid.{layer}")], f"opened.{layer}")
        inner = self._node("Mul", [opened, up], f"mixed.{layer}")
        down = self._node(
            "MatMul", [inner, self._weight(f"down.{layer}", shape.inner, shape.hidden)], f"down_of.{layer}"
        )
        return self._added(state, down, f"b.{layer}")

    def _added(self, left: str, right: str, name: str) -> str:
        return self._node("Add", [left, right], f"added.{name}")

    def _normed(self, state: str, name: str) -> str:
        self._constant(f"scale.{name}", np.ones(self._shape.hidden, np.float32))
        return self._node("SimplifiedLayerNormalization", [state, f"scale.{name}"], f"normed.{name}", epsilon=1e-5)

    def _node(self, kind: str, inputs: Sequence[str], output: str, **attributes: float) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _weight(self, name: str, *shape: int) -> str:
        return self._constant(name, self._random.standard_normal(shape, np.float32) * np.float32(0.02))

    def _constant(self, name: str, value: np.ndarray) -> str:
        self._weights.append(
            helper.make_tensor(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape, value.tobytes(), raw=True
            )
        )
        return name
