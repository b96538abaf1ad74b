"""Writes weights as llama.cpp reads them: `gguf_writer.py WEIGHTS.npz SHAPE.json TOKENIZER.json OUT.gguf`.

Runs in llama-cpp-python's environment, which has the package gguf.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np


def main(weights: str, shape: str, tokenizer: str, out: str) -> None:
    """All in float32; nothing ends an answer but its length, for the token that would is one that hardly comes."""
    told = json.loads(Path(shape).read_text())
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(told["context"])
    writer.add_embedding_length(told["hidden"])
    writer.add_block_count(told["layers"])
    writer.add_feed_forward_length(told["inner"])
    writer.add_head_count(told["heads"])
    writer.add_head_count_kv(told["kv_heads"])
    writer.add_rope_dimension_count(told["hidden"] // told["heads"])
    writer.add_rope_freq_base(told["base"])
    writer.add_layer_norm_rms_eps(told["epsilon"])
    writer.add_vocab_size(told["vocabulary"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    model = json.loads(Path(tokenizer).read_text())["model"]
    pieces = {place: piece for piece, place in model["vocab"].items()}
    # NOTE: llama.cpp ends at tokens that it knows by name, whatever the file says.
    tokens = [pieces.get(place, "<|").replace("<|", f"[{place}] ") for place in range(told["vocabulary"])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]])
    writer.add_eos_token_id(told["vocabulary"] - 1)
    writer.add_add_bos_token(False)
    with np.load(weights) as arrays:
        for name in arrays.files:
            writer.add_tensor(name, _laid_out(name, arrays[name], told))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _laid_out(name: str, array: np.ndarray, told: dict) -> np.ndarray:
    """Its rotation pairs neighbours, where the weights pair halves."""
    heads = {"attn_q": told["heads"], "attn_k": told["kv_heads"]}.get(name.split(".")[-2])
    if heads is None:
        return array
    rows, columns = array.shape
    halves = array.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


main(*sys.argv[1:])
