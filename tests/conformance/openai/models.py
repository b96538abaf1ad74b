"""The models that the cases call: the demo's language model, and a sentence encoder that looks words up."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx_models

DEMO = Path(__file__).resolve().parents[3] / "configs" / "models"

WORDS, SIZE = 8192, 8
"""The cases send ids as they are in a common vocabulary, so this one is as large."""


def write(folder: Path) -> None:
    """Lay them out."""
    shutil.copytree(DEMO / "tinychat", folder / "tinychat")
    version = folder / "embedder" / "1"
    onnx_models.write(_encoder(), version)
    (version / "tokenizer.json").write_text(json.dumps(_tokenizer()), "utf-8")
    (folder / "embedder" / "model.toml").write_text('backend = "embed"\n[embed]\nmatryoshka = true\n', "utf-8")


def _encoder() -> object:
    table = np.random.default_rng(5).standard_normal((WORDS, SIZE)).astype(np.float32)
    ends = [onnx_models.value(name, "int64", ("N", "T")) for name in ("input_ids", "attention_mask")]
    return onnx_models.model(
        [onnx_models.node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        ends,
        [onnx_models.value("last_hidden_state", "float32", ("N", "T", SIZE))],
        [onnx_models.weight("table", table)],
    )


def _tokenizer() -> dict[str, object]:
    """Words at spaces."""
    words = ["[UNK]", "hello", "world", *(f"w{at}" for at in range(3, WORDS))]
    return {
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(words)}, "unk_token": "[UNK]"},
    }
