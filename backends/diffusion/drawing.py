"""Pictures in the making: the prompts are read once, each step takes the noise away a little, the last one paints.

Nothing here waits: every step is one run of a model, for whoever calls to place among those of others.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from backends.diffusion.layout import Part, Parts
from backends.diffusion.schedulers import Array, scheduler
from backends.diffusion.settings import Wish
from gateway.types import Tensor


class Drawing:
    """All the pictures of one request."""

    def __init__(self, parts: Parts, prompts: Sequence[str], negatives: Sequence[str], wish: Wish) -> None:
        self._parts = parts
        self._wish = wish
        self._scheduler = scheduler(wish.scheduler, parts.scheduler, wish.steps)
        self._count = len(prompts) * wish.n
        self._noises = [np.random.default_rng(wish.seed + number) for number in range(self._count)]
        self._guided = wish.guidance > 1 and not parts.guidance_size
        self._texts = [text for text in prompts for _ in range(wish.n)]
        self._negatives = [text for text in negatives for _ in range(wish.n)]
        self._context: Array | None = None
        self._times = self._timesteps()
        self._sample: Array = np.empty(0)

    @property
    def steps(self) -> int:
        """How many times `step` is to be called."""
        return self._wish.steps

    def work(self) -> Iterator[float | Tensor]:
        """All of it, a run of a model at a time: how far it is, from 0.0 to 1.0, then the pictures."""
        self.begin()
        yield 0.0
        for number in range(self.steps):
            self.step(number)
            yield (number + 1) / self.steps
        yield from self.paint()

    def begin(self, latents: Array | None = None) -> None:
        """Read the prompts, and make the first noise. Shape of given noise: [pictures, channels, height, width]."""
        encoder = self._parts.text_encoder
        texts = [*self._negatives, *self._texts] if self._guided else self._texts
        self._context = _run(encoder, {"input_ids": self._parts.prompts.encode(texts)})
        self._sample = (self._noise() if latents is None else latents) * np.float32(self._scheduler.first_scale)

    def step(self, number: int) -> None:
        """Take some noise away."""
        unet, wish = self._parts.unet, self._wish
        shown = self._scheduler.scaled(self._sample, number)
        twice = np.concatenate([shown, shown]) if self._guided else shown
        feed = {
            "sample": twice.astype(unet.dtype("sample"), copy=False),
            "timestep": self._times[number],
            "encoder_hidden_states": self._context,
        }
        if self._parts.guidance_size:
            feed["timestep_cond"] = self._guidance_embedding().astype(unet.dtype("timestep_cond"))
        answer = _run(unet, feed).astype(np.float32, copy=False)
        if self._guided:
            without, told = answer[: self._count], answer[self._count :]
            answer = without + np.float32(wish.guidance) * (told - without)
        self._sample = self._scheduler.next(self._sample, answer, number, self._noise)

    def paint(self) -> Iterator[Tensor]:
        """The pictures one by one, each a run of its own. Shape: [height, width, 3], uint8."""
        vae, parts = self._parts.vae_decoder, self._parts
        latents = self._sample / np.float32(parts.scaling) + np.float32(parts.shift)
        for row in range(self._count):
            feed = {"latent_sample": latents[row : row + 1].astype(vae.dtype("latent_sample"), copy=False)}
            painted = _run(vae, feed)[0].astype(np.float32, copy=False)
            light = np.clip(painted / 2 + 0.5, 0, 1).transpose(1, 2, 0)
            yield self._cut((light * 255).round().astype(np.uint8))

    def _latent_size(self) -> tuple[int, int]:
        """Large enough for the picture that was asked for, in whole steps of the model."""
        least = self._parts.enlargement * self._parts.halvings
        height, width = (-(-side // least) * self._parts.halvings for side in (self._wish.height, self._wish.width))
        return height, width

    def _cut(self, picture: Tensor) -> Tensor:
        """The middle of it, in the size that was asked for."""
        top = (picture.shape[0] - self._wish.height) // 2
        left = (picture.shape[1] - self._wish.width) // 2
        return np.ascontiguousarray(picture[top : top + self._wish.height, left : left + self._wish.width])

    def _noise(self) -> Array:
        """Each picture's is its own, so that it is the same whatever else is drawn with it."""
        shape = (self._parts.channels, *self._latent_size())
        return np.stack([noise.standard_normal(shape, dtype=np.float32) for noise in self._noises])

    def _timesteps(self) -> list[Array]:
        """Each as the model takes it."""
        spec = self._parts.unet.graph.inputs["timestep"].spec
        times = self._scheduler.timesteps.astype(spec.numpy_dtype)
        return [times[step, ...] if spec.shape == () else times[step : step + 1] for step in range(len(times))]

    def _guidance_embedding(self) -> Array:
        """SPEC: as latent consistency models are told it, sines and cosines of 1000 (guidance - 1)."""
        half = self._parts.guidance_size // 2
        rates = np.exp(np.arange(half) * -(np.log(10000.0) / (half - 1)))
        angles = 1000.0 * (self._wish.guidance - 1) * rates
        embedding = np.concatenate([np.sin(angles), np.cos(angles)])
        padded: Array = np.pad(embedding, (0, self._parts.guidance_size - len(embedding)))
        return np.tile(padded, (self._count, 1))


def _run(part: Part, feed: dict[str, Any]) -> Array:
    answer: Array = part.session.run(part.outputs[:1], feed)[0]
    return answer
