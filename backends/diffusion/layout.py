"""A pipeline's folder, as diffusers' ONNX exports lay it out: one folder a part, with its model or its settings."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from backends import _graph
from backends._device import Opener
from backends._foldertexts import read_object, read_text
from backends._session import Config as SessionConfig
from backends._session import Session, Sessions
from backends.diffusion.prompts import Prompts, from_json, from_vocabulary
from backends.diffusion.schedulers import Name
from backends.diffusion.schedulers import Settings as SchedulerSettings
from gateway.errors import LoadFailed
from gateway.interfaces import BackendStatus, ModelSource
from gateway.types import TensorSpec

MAX_TEXT_BYTES = 64 << 20
MAX_TOKENS = 1024
_CLASSES: Mapping[str, Name] = {
    "DDIMScheduler": "ddim",
    "PNDMScheduler": "ddim",
    "EulerDiscreteScheduler": "euler",
    "DPMSolverMultistepScheduler": "dpmsolver++",
    "LCMScheduler": "lcm",
}
"""What the folder calls its scheduler; DDIM, which is nearest, stands in for PNDM."""
_TEXT_INPUTS = frozenset({"input_ids"})
_UNET_INPUTS = frozenset({"sample", "timestep", "encoder_hidden_states"})
_VAE_INPUTS = frozenset({"latent_sample"})
_GUIDED = "timestep_cond"


class Part(Struct, frozen=True):
    """One of the models."""

    session: Session
    graph: _graph.Graph
    status: BackendStatus

    @property
    def outputs(self) -> list[str]:
        return [edge.session_name for edge in self.graph.outputs.values()]

    def dtype(self, name: str) -> np.dtype[Any]:
        """Of that input."""
        return self.graph.inputs[name].spec.numpy_dtype


class Parts(Struct, frozen=True):
    """Everything that a drawing needs."""

    prompts: Prompts
    text_encoder: Part
    unet: Part
    vae_decoder: Part
    scheduler: SchedulerSettings
    scheduler_name: Name
    channels: int
    """Of a latent picture."""
    side: int
    """Of a latent picture that the model was trained with."""
    enlargement: int
    """Pixels to one of the latent picture, along a side."""
    halvings: int
    """Sides of latent pictures are multiples of it, or the model's halves would not meet again."""
    scaling: float
    shift: float
    guidance_size: int
    """Numbers in which the guidance is told to a model that was distilled with it; 0 for others."""

    @property
    def status(self) -> BackendStatus:
        """The UNet's, where the time goes."""
        return self.unet.status


def open_parts(source: ModelSource, config: SessionConfig, sessions: Sessions) -> Parts:
    """Read the folder and open its models. Raises LoadFailed or OutOfMemory."""
    unet_config, vae_config = _settings(source, "unet/config.json"), _settings(source, "vae_decoder/config.json")
    halvings = 2 ** (len(_list(unet_config, "unet", "block_out_channels")) - 1)
    texts = _part(source, "text_encoder", config, sessions, _TEXT_INPUTS)
    unet = _part(source, "unet", config, sessions, _UNET_INPUTS, least=halvings)
    if extra := unet.graph.inputs.keys() - _UNET_INPUTS - {_GUIDED}:
        raise LoadFailed(f"unet: it also takes {sorted(extra)[0]!r}; Stable Diffusion 1 and 2 are served, XL is not")
    vae = _part(source, "vae_decoder", config, sessions, _VAE_INPUTS)
    raw = _settings(source, "scheduler/scheduler_config.json")
    try:
        scheduler = msgspec.convert({key: value for key, value in raw.items() if value is not None}, SchedulerSettings)
    except msgspec.ValidationError as error:
        raise LoadFailed(f"scheduler/scheduler_config.json: {error}") from None
    if raw.get("_class_name") == "DDIMScheduler" and scheduler.clip_sample is None:
        scheduler = replace(scheduler, clip_sample=True)  # SPEC: diffusers' default for DDIM only
    return Parts(
        prompts=_prompts(source, texts),
        text_encoder=texts,
        unet=unet,
        vae_decoder=vae,
        scheduler=scheduler,
        scheduler_name=_CLASSES.get(str(raw.get("_class_name")), "ddim"),
        channels=_whole(unet_config, "unet", "in_channels"),
        side=_whole(unet_config, "unet", "sample_size"),
        enlargement=2 ** (len(_list(vae_config, "vae_decoder", "block_out_channels")) - 1),
        halvings=halvings,
        scaling=float(vae_config.get("scaling_factor") or 0.18215),
        shift=float(vae_config.get("shift_factor") or 0.0),
        guidance_size=_whole(unet_config, "unet", "time_cond_proj_dim") if _GUIDED in unet.graph.inputs else 0,
    )


def _part(
    source: ModelSource, name: str, config: SessionConfig, sessions: Sessions, inputs: frozenset[str], least: int = 1
) -> Part:
    """`least`: the free sides of the input that is tried first."""
    part = replace(source, directory=source.directory / name)
    try:
        graph = _graph.read(part.directory, source.root)
        if missing := inputs - graph.inputs.keys():
            raise LoadFailed(f"the model has no input {sorted(missing)[0]!r}")
        opened = Opener(part, _tried(graph, least), config, sessions).open()
    except LoadFailed as error:
        raise LoadFailed(f"{name}: {error}") from error.__cause__
    return Part(opened.session, graph, opened.status)


def _tried(graph: _graph.Graph, least: int) -> _graph.Graph:
    """The graph with the sides of latent pictures, where they are free, that the warm-up run takes."""
    inputs = {name: replace(edge, spec=_sided(edge.spec, least)) for name, edge in graph.inputs.items()}
    return replace(graph, inputs=inputs)


def _sided(spec: TensorSpec, least: int) -> TensorSpec:
    if spec.shape is None or len(spec.shape) != 4:
        return spec
    batch, channels, *sides = spec.shape
    return replace(spec, shape=(batch, channels, *(side or least for side in sides)))


def _prompts(source: ModelSource, encoder: Part) -> Prompts:
    told = _settings(source, "tokenizer/tokenizer_config.json")
    shape = encoder.graph.inputs["input_ids"].spec.shape
    length = (shape[-1] if shape else None) or told.get("model_max_length")
    if not isinstance(length, int) or not 2 < length <= MAX_TOKENS:
        raise LoadFailed(f"tokenizer/tokenizer_config.json: model_max_length must be 3 to {MAX_TOKENS}")
    if (source.directory / "tokenizer" / "tokenizer.json").exists():
        tokenizer = from_json(_text(source, "tokenizer/tokenizer.json"))
    else:
        vocabulary = _settings(source, "tokenizer/vocab.json")
        merges = _text(source, "tokenizer/merges.txt").splitlines()
        tokenizer = from_vocabulary(vocabulary, merges, _token(told, "bos_token"), _token(told, "eos_token"))
    return Prompts(tokenizer, length, _token(told, "pad_token"), encoder.dtype("input_ids"))


def _token(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    value = value.get("content") if isinstance(value, dict) else value
    if not isinstance(value, str):
        raise LoadFailed(f"tokenizer/tokenizer_config.json: {name} is missing")
    return value


def _text(source: ModelSource, name: str) -> str:
    return read_text(source.directory, source.root, name, MAX_TEXT_BYTES)


def _settings(source: ModelSource, name: str) -> dict[str, Any]:
    return read_object(source.directory, source.root, name, MAX_TEXT_BYTES)


def _whole(settings: Mapping[str, Any], part: str, key: str) -> int:
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 16:
        raise LoadFailed(f"{part}/config.json: {key} must be a whole number of at least 1")
    return value


def _list(settings: Mapping[str, Any], part: str, key: str) -> list[Any]:
    value = settings.get(key)
    if not isinstance(value, list) or not 1 <= len(value) <= 16:
        raise LoadFailed(f"{part}/config.json: {key} must be a list")
    return value
