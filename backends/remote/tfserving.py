"""Tensors to TensorFlow Serving's REST API, by columns.

Source: TensorFlow Serving, docs/api_rest.md. Its classify and regress signatures take tf.Example, and are left out.
"""

from collections.abc import Mapping
from typing import Any

from backends.remote.client import Ask
from backends.remote.failures import bad_answer
from backends.remote.settings import Config
from backends.remote.values import TF_DTYPES, dumps, listed, loads, tensor
from gateway.types import InferenceRequest, Signature, Tensor, TensorSpec

_PREDICT = "tensorflow/serving/predict"


class TFServing:
    """The dialect."""

    platform = "remote_tfserving"

    def __init__(self, model: str, config: Config) -> None:
        version = f"/versions/{config.version}" if config.version else ""
        self.probe = f"/v1/models/{model}{version}"
        self._metadata = f"{self.probe}/metadata"
        self._predict = f"{self.probe}:predict"

    async def signatures(self, asked: Any) -> dict[str, Signature]:
        """What the server tells; `asked` gives the body at a path. Raises InferenceFailed."""
        document = loads(await asked(Ask(self._metadata)))
        try:
            told = document["metadata"]["signature_def"]["signature_def"]
            return {
                name: Signature(name, "predict", _specs(one["inputs"]), _specs(one["outputs"]))
                for name, one in told.items()
                if one.get("method_name") == _PREDICT and one.get("outputs")
            }
        except (KeyError, TypeError, AttributeError, ValueError):
            raise bad_answer("its metadata is not as TF Serving writes it") from None

    def ask(self, signature: Signature, inputs: Mapping[str, Tensor], request: InferenceRequest) -> Ask:
        """The call. Raises InvalidTensor."""
        columns = {name: listed(array) for name, array in inputs.items()}
        body = dumps({"signature_name": signature.name, "inputs": columns})
        return Ask(self._predict, body, request.headers, request.deadline)

    def read(self, body: bytes, headers: Mapping[str, str], signature: Signature) -> dict[str, Tensor]:
        """The outputs. Raises InferenceFailed."""
        document = loads(body)
        if not isinstance(document, dict) or "outputs" not in document:
            raise bad_answer("it has no outputs")
        given = document["outputs"]
        # SPEC: of one output, the value stands there without its name.
        if len(signature.outputs) == 1:
            given = {next(iter(signature.outputs)): given}
        if not isinstance(given, dict):
            raise bad_answer("its outputs have no names")
        return {name: tensor(given[name], spec, name) for name, spec in signature.outputs.items() if name in given}


def _specs(told: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(name, TF_DTYPES[one["dtype"]], _shape(one.get("tensor_shape", {})))
        for name, one in told.items()
    }


def _shape(told: Mapping[str, Any]) -> tuple[int | None, ...] | None:
    if told.get("unknown_rank"):
        return None
    sizes = [int(one["size"]) for one in told.get("dim", [])]
    return tuple(None if size < 0 else size for size in sizes)
