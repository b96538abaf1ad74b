"""A language model, or an encoder, behind an OpenAI-compatible server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from backends._ports import check_wanted, gather, input_port
from backends._signatures import not_found
from backends.remote import questions
from backends.remote.answers import document_of, pieces, together, vectors
from backends.remote.client import Ask, Client
from backends.remote.events import parts
from backends.remote.questions import Question
from backends.remote.settings import ALWAYS_FORWARDED, Config
from backends.remote.watch import Watch
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import BackendStatus, ModelSource
from gateway.types import DEFAULT_SIGNATURE, InferenceRequest, InferenceResponse, ModelMetadata, Signature, TensorSpec

PLATFORM = "remote_openai"
PROBE = "/models"
CHAT, EMBED = "chat", "embed"


def metadata_of(source: ModelSource, config: Config) -> ModelMetadata:
    """What the server is asked for, as signatures. Raises LoadFailed."""
    if source.signatures:
        raise LoadFailed("signatures: a language model has its own: serving_default, chat and embed")
    text, vector = _one("text", "string", (None,)), _one("embedding", "float32", (None, None))
    writes = bool({"chat", "completions"} & {*config.offers})
    embeds = "embeddings" in config.offers
    signatures = {DEFAULT_SIGNATURE: _signature(DEFAULT_SIGNATURE, "prompt", text)} if writes else {}
    if "chat" in config.offers:
        signatures[CHAT] = _signature(CHAT, "messages", text)
    if embeds:
        name = EMBED if writes else DEFAULT_SIGNATURE
        signatures[name] = _signature(name, "text", vector)
    tasks = (("generate",) if writes else ()) + (("embed",) if embeds else ())
    extras: dict[str, Any] = {
        "task": tasks[0],
        "tasks": tasks,
        "chat": "chat" in config.offers,
        "tools": True,
        "matryoshka": True,
        "forwards": (*ALWAYS_FORWARDED, *(name.lower() for name in config.forward_headers)),
    }
    if config.context_length:
        extras["context_length"] = config.context_length
    return ModelMetadata(source.name, source.version, PLATFORM, signatures, extras=extras)


def _one(name: str, dtype: str, shape: tuple[int | None, ...]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(name, dtype, shape)}


def _signature(name: str, taken: str, given: dict[str, TensorSpec]) -> Signature:
    return Signature(name, "predict", _one(taken, "string", (None,)), given)


class LanguageBackend:
    """One model at such servers."""

    def __init__(self, metadata: ModelMetadata, config: Config, client: Client, watch: Watch) -> None:
        self.metadata = metadata
        self._config, self._client, self._watch = config, client, watch
        self._model = config.model or metadata.name
        self._ports = {
            name: tuple(input_port(field, spec, text=True) for field, spec in signature.inputs.items())
            for name, signature in metadata.signatures.items()
        }

    @property
    def status(self) -> BackendStatus:
        """Whether the servers answer."""
        return self._watch.status

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """The whole answers."""
        texts = self._texts(request)
        if "embedding" in self.metadata.signatures[request.signature].outputs:
            return await self._embed(texts, request)
        asked = self._questions(texts, request)
        tasks = [asyncio.ensure_future(self._whole(one, request)) for one in asked]
        try:
            found = [document_of(body) for body in await asyncio.gather(*tasks)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        told = [
            piece
            for one, document in zip(asked, found, strict=True)
            for piece in pieces(document, one.first, whole=True)
        ]
        return together(told, [document.usage for document in found])

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The answer as it is written."""
        texts = self._texts(request)
        if "embedding" in self.metadata.signatures[request.signature].outputs:
            yield await self._embed(texts, request)
            return
        asked = self._questions(texts, request)
        if len(asked) > 1:
            raise InvalidTensor(f"expected one conversation to stream, got {len(asked)}")
        ask = self._ask(asked[0], request, stream=True)
        async with (
            self._client.open(ask) as answer,
            aclosing(parts(answer, 0, self._client.secrets)) as found,
        ):
            async for one in found:
                yield one

    async def close(self) -> None:
        """Close all connections."""
        await self._watch.close()
        await self._client.close()

    async def _whole(self, question: Question, request: InferenceRequest) -> bytes:
        return await self._client.whole(self._ask(question, request, stream=False))

    async def _embed(self, texts: list[str], request: InferenceRequest) -> InferenceResponse:
        tokens = request.parameters.get(questions.TOKENS)
        fields = questions.fields_of(request.parameters, self._config.defaults)
        asked = questions.embeddings(self._model, texts, fields, tokens)
        return vectors(await self._whole(asked, request), len(texts if tokens is None else tokens))

    def _questions(self, texts: list[str], request: InferenceRequest) -> list[Question]:
        fields = questions.fields_of(request.parameters, self._config.defaults)
        if request.signature == CHAT:
            return questions.conversations(self._model, texts, fields)
        if "completions" in self._config.offers:
            return questions.prompts(self._model, texts, fields, request.parameters.get(questions.TOKENS))
        if request.parameters.get(questions.TOKENS) is not None:
            raise InvalidTensor("prompt: the server behind only chats, and takes no token ids")
        return questions.asked_as_user(self._model, texts, fields)

    def _texts(self, request: InferenceRequest) -> list[str]:
        ports = self._ports.get(request.signature)
        if ports is None:
            raise not_found(request.signature, self._ports)
        inputs: dict[str, Any] = {}
        gather(ports, request.inputs, inputs)
        check_wanted(request.outputs, self.metadata.signatures[request.signature].outputs)
        found: list[str] = inputs[ports[0].inner].tolist()
        return found

    def _ask(self, question: Question, request: InferenceRequest, *, stream: bool) -> Ask:
        body = question.written(stream=stream)
        return Ask(question.path, body, request.headers, request.deadline)
