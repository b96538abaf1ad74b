"""What the two bare servers share: one single-threaded session, and uvicorn at its fastest on a free port."""

import socket
import sys
from typing import Any

import numpy as np
import onnxruntime as ort
import uvicorn


class Model:
    """A graph of one input and one output, run where it is called."""

    def __init__(self, path: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._session_run = session.run
        self._input = session.get_inputs()[0].name
        self._outputs = [session.get_outputs()[0].name]

    def run(self, rows: np.ndarray) -> np.ndarray:
        outputs: list[np.ndarray] = self._session_run(self._outputs, {self._input: rows})
        return outputs[0]


def model_from_command_line() -> Model:
    """The model whose path is the only argument."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} MODEL.onnx")
    return Model(sys.argv[1])


def serve(app: Any) -> None:
    """Serve until a signal; prints the address first, as the gateway does."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"bare server on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, http="httptools", loop="uvloop", access_log=False, log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=[sock])
