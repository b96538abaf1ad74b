"""The MLP as ONNX in a user's class of Seldon's."""

from typing import Any

import numpy as np
from session import open_session


class seldon_onnx:  # noqa: N801 - the wrapper finds it by the module's name
    """`data.ndarray` in and out."""

    def __init__(self) -> None:
        self._session = open_session()

    def predict(self, X: Any, names: Any = None, meta: Any = None) -> Any:  # noqa: N803 - Seldon's names
        return self._session.run(["y"], {"x": np.asarray(X, np.float32)})[0]
