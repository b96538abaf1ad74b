"""The MLP as a service of BentoML's, as its documentation writes one."""

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType
from session import open_session


@bentoml.service(workers=1, traffic={"timeout": 60}, logging={"access": {"enabled": False}})
class Mlp:
    """`x` to a list of lists."""

    def __init__(self) -> None:
        self._session = open_session()

    @bentoml.api
    def predict(self, x: Annotated[np.ndarray, DType("float32")]) -> np.ndarray:
        return self._session.run(["y"], {"x": x})[0]
