"""The MLP as a model of KServe's Python server, as its documentation writes one."""

import argparse
from typing import Any

import numpy as np
from kserve import Model, ModelServer, model_server
from session import open_session


class Mlp(Model):
    """Version 1 of its protocol: `instances` to `predictions`."""

    def __init__(self) -> None:
        super().__init__("mlp")
        self.load()

    def load(self) -> bool:
        self._session = open_session()
        self.ready = True
        return self.ready

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        rows = np.array(payload["instances"], np.float32)
        return {"predictions": self._session.run(["y"], {"x": rows})[0].tolist()}


if __name__ == "__main__":
    argparse.ArgumentParser(parents=[model_server.parser]).parse_known_args()
    ModelServer().start([Mlp()])
