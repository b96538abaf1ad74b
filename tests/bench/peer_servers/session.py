"""The MLP's session, one for every peer: one thread, on the CPU."""

import os

import onnxruntime as ort


def open_session() -> ort.InferenceSession:
    """The graph that the variable BENCH_MODEL names."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(os.environ["BENCH_MODEL"], options, providers=["CPUExecutionProvider"])
