"""Embeddings: texts or token ids in, a vector for each out, as numbers or as base64 of little-endian float32."""

from typing import Any

import numpy as np
import orjson
import pybase64
from msgspec import Struct

from adapters._modelcard import EMBED, can
from adapters.openai import fields, inputs
from adapters.openai.asked import Asked, asked, usage
from adapters.openai.errors import Refusal
from gateway.errors import InferenceFailed
from gateway.types import DEFAULT_SIGNATURE, Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target

_OWN = ("input",)
_MOST_INPUTS = 2048


class Embeddings(Struct, frozen=True):
    """The call's two functions."""

    unknown: fields.Unknown

    def decode(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        """The request that the body makes. Raises Refusal."""
        if not can(metadata, "embed"):
            raise Refusal("this model does not embed text", "model", status=404)
        given, ignored = fields.read_for(metadata, target.parsed, fields.EMBEDDING, _OWN, self.unknown)
        longest = None if given.get("truncate") else metadata.extras.get("context_length")
        texts = inputs.read(target.parsed, "input", _MOST_INPUTS, empty=False, longest=longest)
        signature = EMBED if EMBED in metadata.signatures else DEFAULT_SIGNATURE
        _check_dimensions(given.get("dimensions"), metadata, signature)
        return InferenceRequest(
            inputs={"text": np.array(texts.texts, object)},
            signature=signature,
            parameters=given | texts.parameters,
            wire=asked("embd", target, metadata, given, ignored),
        )

    def encode(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        """The vectors in the order of the texts."""
        wire: Asked = request.wire
        vectors = _shortened(response.outputs["embedding"], request.parameters.get("dimensions"))
        if not np.isfinite(vectors).all():
            raise InferenceFailed("the model's answer holds numbers that are not finite")
        write = _base64 if request.parameters.get("encoding_format") == "base64" else _numbers
        counts = usage(response.parameters.get("usage"))
        body = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": write(vector)}
                for index, vector in enumerate(vectors)
            ],
            "model": wire.model,
            "usage": {"prompt_tokens": counts["prompt_tokens"], "total_tokens": counts["total_tokens"]},
        }
        return Reply(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), headers=wire.headers)


def _check_dimensions(wanted: int | None, metadata: ModelMetadata, signature: str) -> None:
    """SPEC: only vectors that were trained for it may be cut."""
    if wanted is None:
        return
    shape = metadata.signatures[signature].outputs["embedding"].shape
    size = shape[-1] if shape else None
    if metadata.extras.get("matryoshka") and (size is None or wanted <= size):
        return
    if wanted != size:
        expected = "this model's vectors cannot be cut" if size is None else f"this model's vectors have {size}"
        raise Refusal(f"dimensions: {expected}, not {wanted}", "dimensions", "invalid_value")


def _shortened(given: np.ndarray, wanted: int | None) -> np.ndarray:
    """Float32 rows of that length, cut and made unit vectors again where they are longer."""
    vectors: np.ndarray = np.ascontiguousarray(given, np.float32)
    if wanted is None or wanted >= vectors.shape[-1]:
        return vectors
    cut: np.ndarray = np.ascontiguousarray(vectors[:, :wanted])
    lengths = np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), np.float32(1e-12))
    unit: np.ndarray = cut / lengths
    return unit


def _numbers(vector: np.ndarray) -> Any:
    return vector


def _base64(vector: np.ndarray) -> str:
    return pybase64.b64encode(vector.astype("<f4").tobytes()).decode()
