"""Language models on ONNX Runtime: any number of conversations in one running batch.

The folder is as ONNX Runtime GenAI's model builder leaves it: genai_config.json, model.onnx, tokenizer.json and a chat
template; or as Optimum exports it, with config.json in the place of the first. Signature `serving_default` continues
`prompt`, signature `chat` answers `messages`, a JSON text; both give `text`. What OpenAI calls the request's fields are
the request's parameters.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from backends._cuda import cuda_problem
from backends._ports import check_wanted, gather, input_port
from backends._signatures import not_found
from backends.generate import layout as files
from backends.generate.answers import parts_of, whole
from backends.generate.chat import ChatTemplate
from backends.generate.decoder import open_decoder, slot_bytes
from backends.generate.grammar import Grammars
from backends.generate.requests import LONG_CHARS, Preparer, chars_of
from backends.generate.scheduler import Job, Scheduler
from backends.generate.sequence import Delta, Language
from backends.generate.settings import settings_of
from backends.generate.tools import Family, family_of, shown_tokens
from backends.generate.vocabulary import Vocabulary
from gateway.errors import DeadlineExceeded, GatewayError, LoadFailed
from gateway.interfaces import Backend, BackendStatus, Device, ModelSource
from gateway.types import DEFAULT_SIGNATURE, InferenceRequest, InferenceResponse, ModelMetadata, Signature, TensorSpec

CHAT = "chat"
PLATFORM = "onnxruntime_generate"

Count = Annotated[int, Meta(ge=1, le=4096)]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[generate]` table of model.toml."""

    slots: Count = 8
    """Answers that are written at the same time."""
    queue: Annotated[int, Meta(ge=0, le=65536)] = 32
    """Answers that may wait for a slot; more are refused."""
    context_length: Annotated[int, Meta(ge=0)] = 0
    """Tokens of a prompt and its answer; 0 for what the model was made for."""
    memory_mib: Annotated[int, Meta(ge=1)] = 4096
    """What the slots' keys and values may take; there are fewer slots if they would take more."""
    chunk: Annotated[int, Meta(ge=1, le=4096)] = 256
    """Tokens of a prompt that are read between two steps of the others."""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Threads that a step may use; 0 for one for each core."""
    most_choices: Annotated[int, Meta(ge=1, le=128)] = 8
    """The greatest `n`."""
    tools: Family | Literal["auto", "none"] = "auto"
    """How the model writes tool calls; auto tells it by the chat template."""
    defaults: dict[str, Any] = {}
    """Parameters for requests that do not give them."""


def shared(device: Device) -> bool:
    """Many processes had better have a model once: those who share its steps are answered sooner."""
    return True


async def load(source: ModelSource, config: Config) -> Backend:
    """The folder's language model, warmed up. Raises LoadFailed or OutOfMemory, whose text shows no path."""
    backend = await asyncio.to_thread(_load, source, config)
    try:
        await backend.warm_up()
    except BaseException:
        await backend.close()
        raise
    return backend


def _load(source: ModelSource, config: Config) -> "GenerateBackend":
    if source.device == "cuda":
        raise LoadFailed("device is cuda, but language models run on the CPU only so far")
    if source.signatures:
        raise LoadFailed("signatures: a language model has its own, serving_default and chat")
    directory, root = source.directory, source.root
    layout = files.read_layout(directory, root)
    context = min(config.context_length or layout.context_length, layout.context_length)
    slots = min(config.slots, (config.memory_mib << 20) // slot_bytes(layout, context))
    if slots < 1:
        need = slot_bytes(layout, context) >> 20
        raise LoadFailed(f"generate.memory_mib: one slot of {context} tokens takes {need} MiB")
    decoder = open_decoder(layout, directory, root, slots, context, config.chunk, config.threads or _cores())
    vocabulary = Vocabulary(files.read_text(directory, root, files.TOKENIZER), decoder.vocabulary)
    tokenizer_config = files.read_tokenizer_config(directory, root)
    template = files.read_template(directory, root, tokenizer_config)
    chat = ChatTemplate(template, tokenizer_config, vocabulary, context) if template else None
    family: Family | None = None
    if config.tools == "auto":
        family = family_of(template) if chat and chat.takes_tools else None
    elif config.tools != "none":
        family = config.tools
    try:
        settings_of({}, config.defaults, vocabulary.size, config.most_choices)
    except GatewayError as error:
        raise LoadFailed(f"generate.defaults: {error}") from None
    preparer = Preparer(
        Language(vocabulary, layout.eos, shown_tokens(vocabulary), context),
        chat,
        Grammars(vocabulary, layout.eos),
        family,
        config.defaults,
        config.most_choices,
        slots + config.queue,
        layout.bos,
    )
    notes = [] if slots == config.slots else [f"generate.memory_mib leaves room for {slots} slots"]
    if source.device == "auto" and cuda_problem() is None:  # pragma: no cover (cuda)
        notes.append("CUDA is not used: language models run on the CPU only so far")
    note = "; ".join(notes)
    scheduler = Scheduler(decoder, config.queue, source.name)
    return GenerateBackend(_metadata(source, layout, preparer), preparer, scheduler, note)


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _metadata(source: ModelSource, layout: files.Layout, preparer: Preparer) -> ModelMetadata:
    text = {"text": TensorSpec("text", "string", (None,))}
    inputs = {DEFAULT_SIGNATURE: "prompt"} | ({CHAT: "messages"} if preparer.chat else {})
    signatures = {
        name: Signature(name, "predict", {field: TensorSpec(field, "string", (None,))}, text)
        for name, field in inputs.items()
    }
    extras = {
        "task": "generate",
        "context_length": preparer.language.context,
        "created": int(layout.file.stat().st_mtime),
        "chat": preparer.chat is not None,
        "tools": preparer.family is not None,
    }
    return ModelMetadata(source.name, source.version, PLATFORM, signatures, extras=extras)


async def _in_time(job: Job, deadline: float) -> list[Delta]:
    """What is new. Raises DeadlineExceeded at the deadline."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await job.deltas()
    except TimeoutError:
        raise DeadlineExceeded("the answer was not complete in time") from None


class GenerateBackend:
    """One loaded language model."""

    def __init__(self, metadata: ModelMetadata, preparer: Preparer, scheduler: Scheduler, note: str = "") -> None:
        self.metadata = metadata
        self.status = BackendStatus("CPU", note)
        self._preparer = preparer
        self._scheduler = scheduler
        self._ports = {
            name: tuple(input_port(field, spec, text=True) for field, spec in signature.inputs.items())
            for name, signature in metadata.signatures.items()
        }

    @property
    def busy(self) -> int:
        """Answers that are being written or wait."""
        return self._scheduler.living

    async def warm_up(self) -> None:
        """Write one token."""
        prompt = np.array(["a"], object)
        await self.infer(InferenceRequest({"prompt": prompt}, parameters={"max_tokens": 1, "temperature": 0}))

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """The whole answers."""
        job = await self._start(request, streamed=False)
        try:
            deltas = await (job.deltas() if request.deadline is None else _in_time(job, request.deadline))
            return whole(job.choices, deltas)
        finally:
            job.cancelled = True

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """The answers as they are written; of several choices each part has one."""
        job = await self._start(request, streamed=True)
        try:
            while True:
                deltas = await (job.deltas() if request.deadline is None else _in_time(job, request.deadline))
                if not deltas:
                    return
                for part in parts_of(job.choices, deltas):
                    yield part
        finally:
            job.cancelled = True

    async def close(self) -> None:
        """Stop the batch, and free the session."""
        await asyncio.to_thread(self._scheduler.close)

    async def _start(self, request: InferenceRequest, streamed: bool) -> Job:
        ports = self._ports.get(request.signature)
        if ports is None:
            raise not_found(request.signature, self._ports)
        inputs: dict[str, Any] = {}
        gather(ports, request.inputs, inputs)
        check_wanted(request.outputs, {"text": None})
        texts = inputs[ports[0].inner].tolist()
        prepare = self._preparer.prepare
        arguments = (texts, request.signature == CHAT, request.parameters, streamed)
        if chars_of(texts, request.parameters) > LONG_CHARS:
            choices = await asyncio.to_thread(prepare, *arguments)
        else:
            choices = prepare(*arguments)
        # SPEC: who chats is shown a sign of life once there is a slot; others' streams have no part without text.
        job = Job(choices, streamed, begins=request.signature == CHAT)
        for choice in choices:
            if choice.echo:
                job.put(choice.echoed())
        self._scheduler.submit(job)
        return job
