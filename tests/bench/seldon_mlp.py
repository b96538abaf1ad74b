"""The MLP as a user's class, for Seldon's wrapper and for the gateway alike: numpy only, its weights beside it."""

from pathlib import Path
from typing import Any

import numpy as np


class Mlp:
    """Shapes: [batch, 784] -> [batch, 10]."""

    def __init__(self) -> None:
        with np.load(Path(__file__).with_name("weights.npz")) as weights:
            self._w1, self._b1, self._w2, self._b2 = (weights[name] for name in ("w1", "b1", "w2", "b2"))

    def predict(self, x: Any, names: Any = None, meta: Any = None) -> np.ndarray:
        """The scores, float32."""
        hidden = np.maximum(np.asarray(x, np.float32) @ self._w1 + self._b1, 0.0)
        scores: np.ndarray = hidden @ self._w2 + self._b2
        return scores
