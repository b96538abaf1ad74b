"""A real sentence encoder, all-MiniLM-L6-v2 in int8, as scripts/embedding-model fetches it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
from tinychat import strings
from tokenizers import Tokenizer

from backends import embed
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    "A man is playing a guitar on stage.",
    "Someone performs music with a guitar.",
    "The stock market fell sharply today.",
    "word " * 200,
]


@cache
def _folder() -> Path:
    """The model's folder, fetched once."""
    target = ROOT / ".venv-embedding"
    folder = target / "minilm" / "1"
    if not (folder / "tokenizer.json").exists():
        environment = {**os.environ, "PYTHON": sys.executable}
        subprocess.run([ROOT / "scripts" / "embedding-model", target], env=environment, check=True, timeout=300)
    return folder


def _embedded(*texts: str) -> np.ndarray:
    async def main() -> np.ndarray:
        backend = await embed.load(ModelSource("minilm", 1, _folder(), _folder()), embed.Config())
        try:
            response = await backend.infer(InferenceRequest({"text": strings(*texts)}))
            return response.outputs["embedding"]
        finally:
            await backend.close()

    return asyncio.run(main())


def _by_hand(text: str) -> np.ndarray:
    """The vector of one text alone, straight from the model."""
    tokenizer = Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    session = onnxruntime.InferenceSession(_folder() / "model.onnx", providers=["CPUExecutionProvider"])
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    vector: np.ndarray = session.run(["last_hidden_state"], feed)[0][0].mean(0)
    return vector / np.linalg.norm(vector)


def test_vectors_are_those_of_the_model() -> None:
    """Encoded together with others, a text keeps the vector that it has alone."""
    vectors = _embedded(*TEXTS)
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert float(vector @ _by_hand(text)) >= 0.999


def test_alike_is_close() -> None:
    """Two sentences about the same lie closer together than two about different things."""
    vectors = _embedded(*TEXTS[:3])
    similar: Sequence[Sequence[float]] = (vectors @ vectors.T).tolist()
    assert similar[0][1] > 0.6
    assert max(similar[0][2], similar[1][2]) < 0.2
