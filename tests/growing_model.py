"""Writes the demo's language model as Optimum exports one: its keys and values grow, and config.json describes it."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tinychat
from onnx import NodeProto, TensorProto, helper

HEADS, KV_HEADS, SIZE, LAYERS = 4, 2, 32, 4


def write(folder: Path, positions: bool = True, masked: bool = True, merged: bool = False) -> None:
    """The folder; the graph asks for positions, for a mask, and whether there is a past, as it is told to."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tinychat.FOLDER / name, folder)
    config = {
        "bos_token_id": 0,
        "eos_token_id": 0,
        "hidden_size": HEADS * SIZE,
        "max_position_embeddings": 1024,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": tinychat.SIZE,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2]}))
    onnx.save(_Rewiring(positions, masked, merged).model(), folder / "model.onnx")


class _Rewiring:
    """The demo's graph with attention in plain operators."""

    def __init__(self, positions: bool, masked: bool, merged: bool) -> None:
        self._model = onnx.load_model(tinychat.FOLDER / "model.onnx")
        self._nodes: list[NodeProto] = []
        self._positions, self._masked, self._merged = positions, masked, merged

    def model(self) -> onnx.ModelProto:
        """The graph, its shapes as Optimum tells them."""
        graph = self._model.graph
        old = [node for node in graph.node if "attn_mask" not in node.name and "attn_mask" not in node.output[0]]
        self._inputs()
        if self._merged:
            self._branches()
        self._mask()
        for node in old:
            if node.op_type == "GroupQueryAttention":
                self._attention(node)
            else:
                self._nodes.append(node)
        del graph.node[:]
        graph.node.extend(self._nodes)
        return self._model

    def _inputs(self) -> None:
        graph = self._model.graph
        kept = [one for one in graph.input if one.name != "attention_mask"]
        for one in kept:
            if one.name.startswith("past"):
                one.type.tensor_type.shape.dim[3].dim_value = SIZE
        if self._masked:
            kept.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]))
        if self._positions:
            kept.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["batch", "tokens"]))
        if self._merged:
            kept.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
        del graph.input[:]
        graph.input.extend(kept)

    def _branches(self) -> None:
        """Without a past, what stands in its place is not looked at."""
        self._put("Squeeze", ["use_cache_branch"], "has_past")
        for layer in range(LAYERS):
            for part in ("key", "value"):
                past = f"past_key_values.{layer}.{part}"
                shape = helper.make_tensor_value_info("used", TensorProto.FLOAT, None)
                kept = helper.make_node("Identity", [past], ["used"])
                zero = helper.make_node("Constant", [], ["nothing"], value_ints=[0])
                two = helper.make_node("Constant", [], ["along"], value_ints=[2])
                cut = helper.make_node("Slice", [past, "nothing", "nothing", "along"], ["used"])
                branches = {
                    "then_branch": helper.make_graph([kept], "with", [], [shape]),
                    "else_branch": helper.make_graph([zero, two, cut], "without", [], [shape]),
                }
                self._put("If", ["has_past"], f"used.{layer}.{part}", **branches)

    def _mask(self) -> None:
        """What a token must not see: what comes after it, and what the mask hides. Shapes: [batch, 1, tokens, all]."""
        self._constant("zero", 0)
        self._constant("one", 1)
        self._constant("two", 2)
        self._constant("first", [1])
        self._constant("last", [2])
        self._constant("least", np.float32(-1e9))
        count = self._at(self._put("Shape", ["input_ids"], "ids_shape"), "one", "count")
        past = self._at(self._put("Shape", [self._past(0, "key")], "past_shape"), "two", "past")
        total = self._put("Add", [count, past], "total")
        rows = self._put("Range", [past, total, "one"], "rows")
        columns = self._put("Range", ["zero", total, "one"], "columns")
        row = self._put("Unsqueeze", [rows, "first"], "row")
        hidden = self._put("Greater", [columns, row], "hidden")
        bias = self._put("Mul", [self._put("Cast", [hidden], "hides", to=TensorProto.FLOAT), "least"], "bias")
        if self._masked:
            seen = self._put("Cast", ["attention_mask"], "seen", to=TensorProto.FLOAT)
            self._constant("float_one", np.float32(1))
            padding = self._put("Mul", [self._put("Sub", ["float_one", seen], "unseen"), "least"], "padding")
            self._constant("middle", [1, 2])
            bias = self._put("Add", [bias, self._put("Unsqueeze", [padding, "middle"], "padded")], "masked")
        places = "position_ids"
        if not self._positions:
            self._constant("start", [0])
            places = self._put("Unsqueeze", [rows, "start"], "places")
        for angle in ("cos", "sin"):
            found = self._put("Gather", [f"{angle}_cache", places], f"{angle}_of")
            self._put("Unsqueeze", [found, "first"], angle)
        self._bias = bias

    def _attention(self, node: NodeProto) -> None:
        layer = int(node.output[1].split(".")[1])
        at = f"/{layer}"
        self._constant(f"sizes{at}", [HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE])
        parts = [f"{part}{at}" for part in ("q", "k", "v")]
        self._nodes.append(helper.make_node("Split", [node.input[0], f"sizes{at}"], parts, axis=-1))
        query, key, value = (
            self._heads(part, heads) for part, heads in zip(parts, (HEADS, KV_HEADS, KV_HEADS), strict=True)
        )
        query, key = self._turned(query), self._turned(key)
        self._put("Concat", [self._past(layer, "key"), key], node.output[1], axis=2)
        self._put("Concat", [self._past(layer, "value"), value], node.output[2], axis=2)
        keys, values = (self._repeated(name) for name in node.output[1:])
        turned = self._put("Transpose", [keys], f"turned{at}", perm=[0, 1, 3, 2])
        self._constant(f"scale{at}", np.float32(SIZE**-0.5))
        scores = self._put("Mul", [self._put("MatMul", [query, turned], f"raw{at}"), f"scale{at}"], f"scores{at}")
        weights = self._put("Softmax", [self._put("Add", [scores, self._bias], f"biased{at}")], f"weights{at}", axis=-1)
        mixed = self._put("MatMul", [weights, values], f"mixed{at}")
        back = self._put("Transpose", [mixed], f"back{at}", perm=[0, 2, 1, 3])
        self._constant(f"flat{at}", [0, 0, HEADS * SIZE])
        self._put("Reshape", [back, f"flat{at}"], node.output[0])

    def _heads(self, part: str, heads: int) -> str:
        self._constant(f"{part}_shape", [0, 0, heads, SIZE])
        apart = self._put("Reshape", [part, f"{part}_shape"], f"{part}_apart")
        return self._put("Transpose", [apart], f"{part}_heads", perm=[0, 2, 1, 3])

    def _turned(self, name: str) -> str:
        left, right = f"{name}_left", f"{name}_right"
        self._nodes.append(helper.make_node("Split", [name], [left, right], axis=-1, num_outputs=2))
        cosines = [self._put("Mul", [half, "cos"], f"{half}_cos") for half in (left, right)]
        sines = [self._put("Mul", [half, "sin"], f"{half}_sin") for half in (left, right)]
        turned = [
            self._put("Sub", [cosines[0], sines[1]], f"{left}_turned"),
            self._put("Add", [cosines[1], sines[0]], f"{right}_turned"),
        ]
        return self._put("Concat", turned, f"{name}_turned", axis=-1)

    def _repeated(self, name: str) -> str:
        self._constant(f"{name}_times", [1, 1, HEADS // KV_HEADS, 1, 1])
        self._constant(f"{name}_shape", [0, HEADS, -1, SIZE])
        apart = self._put("Unsqueeze", [name, "last"], f"{name}_apart")
        many = self._put("Expand", [apart, f"{name}_times"], f"{name}_many")
        return self._put("Reshape", [many, f"{name}_shape"], f"{name}_repeated")

    def _past(self, layer: int, part: str) -> str:
        return f"used.{layer}.{part}" if self._merged else f"past_key_values.{layer}.{part}"

    def _at(self, shape: str, place: str, name: str) -> str:
        return self._put("Gather", [shape, place], name, axis=0)

    def _put(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _constant(self, name: str, value: Any) -> None:
        array = np.array(value) if isinstance(value, np.generic) else np.array(value, np.int64)
        self._model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
