"""The MLP as a runtime of MLServer's, as its documentation writes one: a codec, one `session.run`, a codec.

Run by MLServer's own environment, which has onnxruntime.
"""

import os

import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Mlp(MLModel):
    """The graph that the variable BENCH_MODEL names, on one thread."""

    async def load(self) -> bool:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(os.environ["BENCH_MODEL"], options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = NumpyCodec.decode_input(payload.inputs[0])
        (scores,) = self._session.run(["y"], {"x": rows})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output(name="y", payload=scores)])
