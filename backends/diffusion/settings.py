"""What a picture is to be like: a request's parameters, checked; the text of a refusal names the parameter."""

import math
import secrets
from collections.abc import Mapping
from typing import Any, get_args

from msgspec import Struct

from backends.diffusion.schedulers import Name
from gateway.errors import InvalidTensor

SCHEDULERS: tuple[Name, ...] = get_args(Name)
INT64 = 1 << 63
MOST_GUIDANCE = 100.0
LEAST_SIDE = 8

_NAMES = {
    "num_inference_steps": "steps",
    "step": "steps",
    "cfg": "guidance_scale",
    "guidance": "guidance_scale",
    "num_images_per_prompt": "n",
    "negativePrompt": "negative_prompt",
    "sampler": "scheduler",
}
"""Other servers' names for the same parameters: the platform's websocket, Hugging Face's, Stability's."""


class Bounds(Struct, frozen=True):
    """What a request may ask for."""

    steps: int
    side: int
    """Pixels."""
    pixels: int
    """Of one picture."""
    images: int
    """Of one request, over all its prompts."""


class Wish(Struct, frozen=True):
    """How to draw."""

    steps: int
    guidance: float
    """1 or less: without."""
    width: int
    height: int
    seed: int
    """Of the first picture; the next have the seeds after it."""
    scheduler: Name
    negative: str
    n: int
    """Pictures for each prompt."""


def wish_of(given: Mapping[str, Any], defaults: Wish, bounds: Bounds, prompts: int) -> Wish:
    """What the parameters ask for; null means absent. Raises InvalidTensor."""
    named = {_NAMES.get(name, name): (name, value) for name, value in given.items() if value is not None}
    read = _Reader(named)
    wish = Wish(
        steps=read.whole("steps", defaults.steps, 1, bounds.steps),
        guidance=read.number("guidance_scale", defaults.guidance, 0.0, MOST_GUIDANCE),
        width=read.whole("width", defaults.width, LEAST_SIDE, bounds.side),
        height=read.whole("height", defaults.height, LEAST_SIDE, bounds.side),
        seed=read.whole("seed", secrets.randbelow(1 << 31), 0, INT64 - 1),
        scheduler=read.scheduler(defaults.scheduler),
        negative=read.text("negative_prompt", defaults.negative),
        n=read.whole("n", 1, 1, bounds.images),
    )
    if wish.width * wish.height > bounds.pixels:
        raise InvalidTensor(
            f"parameters.width: expected at most {bounds.pixels} pixels, got {wish.width} x {wish.height}"
        )
    if prompts * wish.n > bounds.images:
        raise InvalidTensor(
            f"parameters.n: expected at most {bounds.images} pictures a request, got {prompts * wish.n}"
        )
    return wish


class _Reader:
    """Parameters by their own name, each with the name that the caller gave it."""

    def __init__(self, given: Mapping[str, tuple[str, Any]]) -> None:
        self._given = given

    def number(self, name: str, default: float, least: float, most: float) -> float:
        told, value = self._given.get(name, (name, default))
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not good or not least <= value <= most:
            raise InvalidTensor(f"parameters.{told}: expected a number from {least:g} to {most:g}, got {_shown(value)}")
        return float(value)

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        told, value = self._given.get(name, (name, default))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidTensor(
                f"parameters.{told}: expected a whole number from {least} to {most}, got {_shown(value)}"
            )
        return value

    def text(self, name: str, default: str) -> str:
        told, value = self._given.get(name, (name, default))
        if not isinstance(value, str):
            raise InvalidTensor(f"parameters.{told}: expected a text, got {_shown(value)}")
        return value

    def scheduler(self, default: Name) -> Name:
        told, value = self._given.get("scheduler", ("scheduler", default))
        for name in SCHEDULERS:
            if value == name:
                return name
        raise InvalidTensor(f"parameters.{told}: expected one of {', '.join(SCHEDULERS)}, got {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:64]}..."
