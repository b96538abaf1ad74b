"""The MLP behind LitServe, as its documentation writes an API; argument: the port."""

import sys
from typing import Any

import litserve
import numpy as np
from session import open_session


class Mlp(litserve.LitAPI):
    """`instances` to `predictions`."""

    def setup(self, device: str) -> None:
        self._session = open_session()

    def decode_request(self, request):  # type: ignore[no-untyped-def] # LitServe takes an annotation for a schema
        return np.array(request["instances"], np.float32)

    def predict(self, x):  # type: ignore[no-untyped-def]
        return self._session.run(["y"], {"x": x})[0]

    def encode_response(self, output: Any) -> Any:
        return {"predictions": output.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(Mlp(api_path="/predict"), accelerator="cpu", devices=1, workers_per_device=1)
    server.run(
        port=int(sys.argv[1]), host="127.0.0.1", num_api_servers=1, log_level="warning", generate_client_file=False
    )
