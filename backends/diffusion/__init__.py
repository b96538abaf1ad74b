"""Text to image: a Stable Diffusion pipeline on ONNX Runtime, in the layout of diffusers' ONNX exports.

Signature `serving_default` makes `image` of `prompt`, signature `guided` of `prompt` and `negative_prompt`; how to draw
is said in the request's parameters. Several requests take turns, so that none waits for another's last step; a request
that is given up stops within its turn, which is a step, or as many as 5 ms have room for.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from backends._failures import answer
from backends._ports import check_wanted, gather, input_port
from backends._session import Config as SessionConfig
from backends._session import OnnxRuntime
from backends._signatures import not_found
from backends.diffusion.drawing import Drawing
from backends.diffusion.layout import Parts, open_parts
from backends.diffusion.schedulers import Name
from backends.diffusion.settings import Bounds, Wish, wish_of
from gateway.errors import DeadlineExceeded, GatewayError, InvalidTensor, LoadFailed, Overloaded
from gateway.interfaces import Backend, BackendStatus, Device, ModelSource
from gateway.types import (
    DEFAULT_SIGNATURE,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Signature,
    Tensor,
    TensorSpec,
)

PLATFORM = "onnxruntime_diffusion"
MOST_CHARS = 1 << 16
"""Of a prompt; the text encoder reads the first few dozen words only."""

PROMPT, NEGATIVE, IMAGE = "prompt", "negative_prompt", "image"
GUIDED = "guided"


def _signature(name: str, *inputs: str) -> Signature:
    texts = {one: TensorSpec(one, "string", (None,)) for one in inputs}
    return Signature(name, "predict", texts, {IMAGE: TensorSpec(IMAGE, "uint8", (None, None, None, 3))})


SIGNATURES = {
    DEFAULT_SIGNATURE: _signature(DEFAULT_SIGNATURE, PROMPT),
    GUIDED: _signature(GUIDED, PROMPT, NEGATIVE),
}

TURN_SECONDS = 0.005
"""PERF: a thread is reached in 60 us. The demo's model takes 0.9 ms for a step, most others far more than a turn."""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[diffusion]` table of model.toml."""

    scheduler: Name | None = None
    """None for the one that the folder names, or the nearest to it."""
    steps: Annotated[int, Meta(ge=1, le=1000)] = 25
    """Where the request does not say."""
    guidance_scale: Annotated[float, Meta(ge=0, le=100)] = 7.5
    negative_prompt: str = ""
    width: Annotated[int, Meta(ge=0, le=8192)] = 0
    """0 for what the model was trained with."""
    height: Annotated[int, Meta(ge=0, le=8192)] = 0
    most_steps: Annotated[int, Meta(ge=1, le=1000)] = 150
    most_side: Annotated[int, Meta(ge=8, le=8192)] = 1024
    """Pixels of the longer side."""
    most_images: Annotated[int, Meta(ge=1, le=64)] = 4
    """Pictures of one request."""
    queue: Annotated[int, Meta(ge=1, le=4096)] = 16
    """Requests that are drawn at the same time; more are refused."""
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Threads that one run may use."""
    cuda_device: Annotated[int, Meta(ge=0, le=127)] = 0


def shared(device: Device) -> bool:
    """Many processes had better have a model once: its networks are large, and drawings take turns."""
    return True


async def load(source: ModelSource, config: Config) -> Backend:
    """The folder's pipeline, warmed up. Raises LoadFailed or OutOfMemory, whose text shows no path."""
    backend = await asyncio.to_thread(_load, source, config)
    await backend.infer(InferenceRequest({"prompt": np.array(["a"], object)}, parameters={"steps": 1, "seed": 0}))
    return backend


def _load(source: ModelSource, config: Config) -> "DiffusionBackend":
    if source.signatures:
        raise LoadFailed("signatures: a text-to-image model has its own, serving_default")
    session = SessionConfig(threads=config.threads, cuda_device=config.cuda_device)
    parts = open_parts(source, session, OnnxRuntime())
    trained = parts.side * parts.enlargement
    defaults = Wish(
        steps=config.steps,
        guidance=config.guidance_scale,
        width=config.width or trained,
        height=config.height or trained,
        seed=0,
        scheduler=config.scheduler or parts.scheduler_name,
        negative=config.negative_prompt,
        n=1,
    )
    bounds = Bounds(config.most_steps, config.most_side, config.most_side**2, config.most_images)
    try:
        wish_of({}, defaults, bounds, prompts=1)
    except InvalidTensor as error:
        raise LoadFailed(f"diffusion: {error}") from None
    return DiffusionBackend(_metadata(source), parts, defaults, bounds, config.queue)


def _metadata(source: ModelSource) -> ModelMetadata:
    file = source.directory / "unet" / "model.onnx"
    extras = {"task": "text-to-image", "created": int(file.stat().st_mtime)}
    return ModelMetadata(source.name, source.version, PLATFORM, SIGNATURES, extras=extras)


class DiffusionBackend:
    """One loaded pipeline."""

    def __init__(self, metadata: ModelMetadata, parts: Parts, defaults: Wish, bounds: Bounds, most: int) -> None:
        self.metadata = metadata
        self.status: BackendStatus = parts.status
        self._parts: Parts | None = parts
        self._defaults = defaults
        self._bounds = bounds
        self._most = most
        self._drawing = 0
        self._thread = ThreadPoolExecutor(1, f"draw-{metadata.name}")
        self._turn = asyncio.Lock()
        """Whoever holds it runs a model; those who wait get it in the order in which they came."""
        self._ports = {
            name: tuple(input_port(field, spec, text=True) for field, spec in signature.inputs.items())
            for name, signature in metadata.signatures.items()
        }

    @property
    def busy(self) -> int:
        """Requests that are being drawn."""
        return self._drawing

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """The pictures. Shape: [pictures, height, width, 3]."""
        parts = [part async for part in self.stream(request) if part.outputs]
        return parts[-1]

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """How far it is, in the parameter `progress` from 0.0 to 1.0; the last part has the pictures."""
        drawing, wish = self._begun(request)
        if self._drawing >= self._most:
            raise Overloaded(f"{self._most} requests are being drawn already", retry_after=1.0)
        self._drawing += 1
        try:
            pictures = []
            work = Work(drawing.work())
            while done := await self._take_turn(work, request.deadline):
                for one in done:
                    if isinstance(one, float):
                        yield InferenceResponse({}, {"progress": one})
                    else:
                        pictures.append(one)
            yield InferenceResponse({IMAGE: np.stack(pictures)}, {"seed": wish.seed})
        finally:
            self._drawing -= 1

    async def close(self) -> None:
        """Free the sessions, off the loop."""
        held, self._parts = [self._parts], None
        self._thread.shutdown(wait=False)
        await asyncio.to_thread(held.clear)

    def _begun(self, request: InferenceRequest) -> tuple[Drawing, Wish]:
        ports = self._ports.get(request.signature)
        if ports is None:
            raise not_found(request.signature, self._ports)
        inputs: dict[str, Any] = {}
        gather(ports, request.inputs, inputs)
        check_wanted(request.outputs, {IMAGE: None})
        prompts: list[str] = inputs[PROMPT].tolist()
        if not prompts:
            raise InvalidTensor("prompt: expected at least one text")
        wish = wish_of(request.parameters, self._defaults, self._bounds, len(prompts))
        negatives = inputs[NEGATIVE].tolist() if NEGATIVE in inputs else [wish.negative] * len(prompts)
        if len(negatives) != len(prompts):
            raise InvalidTensor(
                f"negative_prompt: expected {len(prompts)} texts, one for each prompt, got {len(negatives)}"
            )
        if any(len(text) > MOST_CHARS for text in (*prompts, *negatives)):
            raise InvalidTensor(f"prompt: expected at most {MOST_CHARS} characters")
        assert self._parts is not None
        return Drawing(self._parts, prompts, negatives, wish), wish

    async def _take_turn(self, work: "Work", deadline: float | None) -> list[float | Tensor]:
        """A turn's work, when it is this request's; none when all is done. Raises DeadlineExceeded or BackendError."""
        async with self._turn:
            if deadline is not None and time.monotonic() > deadline:
                raise DeadlineExceeded("the picture was not complete in time")
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, work.go_on)
            except GatewayError:
                raise
            except Exception as error:
                raise answer(error, True) from error


class Work:
    """What is left of a drawing, in turns."""

    def __init__(self, runs: Iterator[float | Tensor], clock: Callable[[], float] = time.perf_counter) -> None:
        self._runs = runs
        self._clock = clock
        self._longest = TURN_SECONDS
        """The first run, which reads the prompts, has a turn of its own: it tells nothing of those to come."""

    def go_on(self) -> list[float | Tensor]:
        """One run of a model; or as many as a turn has room for, by the longest so far."""
        done: list[float | Tensor] = []
        longest, self._longest = self._longest, 0.0
        began = last = self._clock()
        for one in self._runs:
            done.append(one)
            now = self._clock()
            longest, last = max(longest, now - last), now
            if now - began + longest > TURN_SECONDS:
                break
        return done
