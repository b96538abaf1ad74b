"""The MLP behind PyTriton, NVIDIA's Triton with a Python model; arguments: the ports for HTTP, gRPC and metrics."""

import sys
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from session import open_session

SESSION = open_session()


@batch
def infer(x: Any) -> Any:
    """Rows in, scores out."""
    return {"y": SESSION.run(["y"], {"x": x})[0]}


if __name__ == "__main__":
    http, grpc, metrics = map(int, sys.argv[1:])
    config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics, http_address="127.0.0.1")
    with Triton(config=config) as triton:
        triton.bind(
            model_name="mlp",
            infer_func=infer,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(784,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(10,))],
            config=ModelConfig(max_batch_size=256, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
        )
        triton.serve()
