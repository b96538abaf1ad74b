"""Sentence encoders on ONNX Runtime: a text becomes a vector.

The folder holds model.onnx, as exported for the Hugging Face hub, and its tokenizer.json. The one signature takes
`text` and gives `embedding`; texts of all requests are encoded together, those of about the same length at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from backends import _graph
from backends._cuda import cuda_problem
from backends._device import Opener
from backends._failures import answer
from backends._foldertexts import read_text
from backends._ports import check_wanted, gather, input_port
from backends._session import Config as SessionConfig
from backends._session import OnnxRuntime, Session
from backends._signatures import not_found
from backends.embed.queue import Queue, Vectors
from backends.embed.texts import TOKENS, Texts
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import Backend, BackendStatus, Device, ModelSource
from gateway.types import DEFAULT_SIGNATURE, InferenceRequest, InferenceResponse, ModelMetadata, Signature, TensorSpec

PLATFORM = "onnxruntime_embed"
TOKENIZER = "tokenizer.json"
MAX_TOKENIZER_BYTES = 256 << 20
LONG_CHARS = 2048
"""PERF: tokenizing a longer text takes more than 0.2 ms, so it is not done on the event loop."""

_IDS, _MASK, _TYPES, _POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[embed]` table of model.toml."""

    pooling: Literal["mean", "cls", "last"] = "mean"
    """How the tokens' vectors become the text's; a model that pools itself is left to it."""
    normalize: bool = True
    """Whether vectors have length 1."""
    max_tokens: Annotated[int, Meta(ge=2, le=1 << 20)] = 512
    """Tokens that a text may have, those around it included."""
    matryoshka: bool = False
    """Whether the model was trained so that the first numbers of a vector are a vector too."""
    batch_tokens: Annotated[int, Meta(ge=1)] = 8192
    """Tokens that one run takes, filling included."""
    queue: Annotated[int, Meta(ge=1)] = 8192
    """Texts that may wait; more are refused."""
    most_texts: Annotated[int, Meta(ge=1)] = 2048
    """Texts of one request."""
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Threads that one run may use."""


def shared(device: Device) -> bool:
    """Whether many processes had better have a model once: on a GPU, whose memory each of them would fill."""
    return device != "cpu" and cuda_problem() is None


async def load(source: ModelSource, config: Config) -> Backend:
    """The folder's encoder, warmed up. Raises LoadFailed or OutOfMemory, whose text shows no path."""
    backend = await asyncio.to_thread(_load, source, config)
    try:
        await backend.infer(InferenceRequest({"text": np.array(["a"], object)}))
    except BaseException:
        await backend.close()
        raise
    return backend


def _load(source: ModelSource, config: Config) -> "EmbedBackend":
    if source.signatures:
        raise LoadFailed("signatures: an embedding model has its own, serving_default")
    graph = _graph.read(source.directory, source.root)
    missing = {_IDS} - graph.inputs.keys() or graph.inputs.keys() - {_IDS, _MASK, _TYPES, _POSITIONS}
    if missing:
        known = f"{_IDS}, {_MASK}, {_TYPES} and {_POSITIONS}"
        raise LoadFailed(f"an encoder takes {known}, the first at least; not so here: {sorted(missing)[0]}")
    texts = Texts(read_text(source.directory, source.root, TOKENIZER, MAX_TOKENIZER_BYTES), config.max_tokens)
    opened = Opener(source, graph, SessionConfig(threads=config.threads), OnnxRuntime()).open()
    encoder = Encoder(opened.session, graph, config)
    file = source.directory / _graph.MODEL_FILE
    spec = TensorSpec("embedding", "float32", (None, encoder.size))
    signature = Signature(
        DEFAULT_SIGNATURE, "predict", {"text": TensorSpec("text", "string", (None,))}, {"embedding": spec}
    )
    extras = {
        "task": "embed",
        "context_length": config.max_tokens,
        "created": int(file.stat().st_mtime),
        "chat": False,
        "tools": False,
        "matryoshka": config.matryoshka,
    }
    metadata = ModelMetadata(source.name, source.version, PLATFORM, {DEFAULT_SIGNATURE: signature}, extras=extras)
    return EmbedBackend(metadata, opened.status, texts, encoder, config)


class Encoder:
    """The model's session: token ids in, vectors out."""

    def __init__(self, session: Session, graph: _graph.Graph, config: Config) -> None:
        self._session, self._config = session, config
        self._dtypes = {name: edge.spec.numpy_dtype for name, edge in graph.inputs.items()}
        outputs = {edge.session_name: edge.spec.shape for edge in graph.outputs.values()}
        pooled = [name for name, shape in outputs.items() if shape is not None and len(shape) == 2]
        hidden = [name for name, shape in outputs.items() if shape is not None and len(shape) == 3]
        self._pools = not pooled or "last_hidden_state" in hidden
        if not (hidden if self._pools else pooled):
            raise LoadFailed("no output of the model is [texts, tokens, size] or [texts, size]")
        self._output = "last_hidden_state" if "last_hidden_state" in hidden else (hidden if self._pools else pooled)[0]
        self.size = (outputs[self._output] or (None,))[-1]
        """Numbers of a vector; None where the model does not say."""

    def encode(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Shapes: [texts][tokens] -> [texts, size]."""
        length = max(map(len, texts))
        ids = np.zeros((len(texts), length), np.int64)
        mask = np.zeros((len(texts), length), np.int64)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        feed = {_IDS: ids, _MASK: mask, _TYPES: np.zeros_like(ids), _POSITIONS: np.maximum(mask.cumsum(1) - 1, 0)}
        taken = {name: feed[name].astype(dtype, copy=False) for name, dtype in self._dtypes.items()}
        try:
            given = self._session.run([self._output], taken)[0]
        except Exception as error:
            raise answer(error, True) from error
        vectors = (
            _pooled(given.astype(np.float32, copy=False), mask, self._config.pooling)
            if self._pools
            else given.astype(np.float32)
        )
        return unit(vectors) if self._config.normalize else vectors


def _pooled(hidden: Vectors, mask: np.ndarray, pooling: str) -> Vectors:
    """Shapes: [texts, tokens, size], [texts, tokens] -> [texts, size]."""
    if pooling == "cls":
        first: Vectors = hidden[:, 0]
        return first
    if pooling == "last":
        last: Vectors = hidden[np.arange(len(hidden)), mask.sum(1) - 1]
        return last
    weights = mask.astype(np.float32)
    # A product with the mask would make a vector that is not finite in the filling count.
    summed = np.where(mask[:, :, None] > 0, hidden, 0).sum(1)
    pooled: Vectors = summed / np.maximum(weights.sum(1, keepdims=True), 1)
    return pooled


def unit(vectors: Vectors) -> Vectors:
    """The vectors with length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = vectors / np.maximum(lengths, np.float32(1e-12))
    return scaled


class EmbedBackend:
    """One loaded encoder."""

    def __init__(
        self, metadata: ModelMetadata, status: BackendStatus, texts: Texts, encoder: Encoder, config: Config
    ) -> None:
        self.metadata = metadata
        self.status = status
        self._texts = texts
        self._config = config
        self._ports = tuple(
            input_port(name, spec, text=True) for name, spec in metadata.signatures[DEFAULT_SIGNATURE].inputs.items()
        )
        self._queue = Queue(encoder.encode, config.queue, config.batch_tokens, metadata.name)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """A vector for each text. Shapes: [texts] -> [texts, size], or `dimensions` instead of size."""
        if request.signature != DEFAULT_SIGNATURE:
            raise not_found(request.signature, self.metadata.signatures)
        inputs: dict[str, Any] = {}
        gather(self._ports, request.inputs, inputs)
        check_wanted(request.outputs, {"embedding": None})
        tokens = await self._tokens(inputs["text"].tolist(), request.parameters)
        vectors = np.stack(await self._queue.vectors(tokens))
        count = sum(map(len, tokens))
        usage = {"prompt_tokens": count, "completion_tokens": 0, "total_tokens": count}
        shortened = self._shortened(vectors, request.parameters.get("dimensions"))
        return InferenceResponse({"embedding": shortened}, {"usage": usage})

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The one answer."""
        yield await self.infer(request)

    async def close(self) -> None:
        """End the thread."""
        self._queue.close()

    async def _tokens(self, texts: list[str], parameters: Any) -> list[list[int]]:
        cut = parameters.get("truncate") is True
        given = parameters.get(TOKENS)
        most = self._config.most_texts
        if not 1 <= len(texts if given is None else given) <= most:
            raise InvalidTensor(f"text: expected 1 to {most} texts, got {len(texts)}")
        if given is not None:
            return self._texts.given(given, cut=cut)
        if sum(map(len, texts)) > LONG_CHARS:
            return await asyncio.to_thread(self._texts.encode, texts, cut=cut)
        return self._texts.encode(texts, cut=cut)

    def _shortened(self, vectors: Vectors, wanted: Any) -> Vectors:
        """The first numbers only, made vectors of length 1 again."""
        size = vectors.shape[1]
        if wanted is None or wanted == size:
            return vectors
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= size:
            raise InvalidTensor(f"parameters.dimensions: expected a whole number from 1 to {size}")
        if not self._config.matryoshka:
            raise InvalidTensor(f"parameters.dimensions: this model's vectors have {size} numbers and cannot be cut")
        return unit(vectors[:, :wanted])
