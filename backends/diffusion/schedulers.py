"""From noise to a picture in a few steps: DDIM, Euler, DPM-Solver++ (second order, multistep) and LCM.

Each is built for one drawing, tells the timesteps to ask the model at, and takes the model's answers one by one. The
arithmetic is that of diffusers 0.42, in float32, so that equal noise gives equal pictures.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np
from msgspec import Struct

Array = np.ndarray[Any, np.dtype[Any]]
Noise = Callable[[], Array]
"""Fresh noise in the sample's shape."""
Name = Literal["ddim", "euler", "dpmsolver++", "lcm"]
Spacing = Literal["leading", "linspace", "trailing"]
Prediction = Literal["epsilon", "v_prediction", "sample"]

LCM_ORIGINAL_STEPS = 50
LCM_TIMESTEP_SCALING = 10.0
_SIGMA_DATA = 0.5
_SHORT = 15
"""DPM-Solver++ is of first order at the end of drawings with fewer steps."""


class Settings(Struct, frozen=True):
    """scheduler_config.json, as far as it matters; the defaults are diffusers'."""

    num_train_timesteps: int = 1000
    beta_start: float = 0.0001
    beta_end: float = 0.02
    beta_schedule: Literal["linear", "scaled_linear", "squaredcos_cap_v2"] = "linear"
    prediction_type: Prediction = "epsilon"
    timestep_spacing: Spacing | None = None
    steps_offset: int = 0
    set_alpha_to_one: bool = True
    clip_sample: bool | None = None
    clip_sample_range: float = 1.0
    original_inference_steps: int = LCM_ORIGINAL_STEPS
    final_sigmas_type: Literal["zero", "sigma_min"] = "zero"

    @property
    def kept(self) -> Array:
        """How much of the picture is left at each timestep: the cumulated product of the alphas."""
        kept: Array = np.cumprod(1.0 - _betas(self), dtype=np.float32)
        return kept

    @property
    def last_kept(self) -> np.float32:
        """The same, before the first timestep."""
        return np.float32(1) if self.set_alpha_to_one else np.float32(self.kept[0])

    def spacing(self, default: Spacing) -> Spacing:
        """How the timesteps of a drawing lie among those of the training."""
        return self.timestep_spacing or default


class Scheduler(Protocol):
    """One drawing's way through the timesteps."""

    timesteps: Array
    first_scale: float
    """What the first noise is multiplied by."""

    def scaled(self, sample: Array, step: int) -> Array:
        """What the model is shown at that step."""

    def next(self, sample: Array, answer: Array, step: int, noise: Noise) -> Array:
        """The sample after that step, from the model's answer to it."""


def scheduler(name: Name, settings: Settings, steps: int) -> Scheduler:
    """The scheduler for a drawing of so many steps."""
    makers: dict[Name, type[Ddim | Euler | DpmSolver | Lcm]] = {
        "ddim": Ddim, "euler": Euler, "dpmsolver++": DpmSolver, "lcm": Lcm,
    }  # fmt: skip
    return makers[name](settings, steps)


def _betas(settings: Settings) -> Array:
    start, end, count = settings.beta_start, settings.beta_end, settings.num_train_timesteps
    match settings.beta_schedule:
        case "linear":
            return np.linspace(start, end, count, dtype=np.float32)
        case "scaled_linear":
            root: Array = np.linspace(np.float32(start**0.5), np.float32(end**0.5), count, dtype=np.float32)
            return root**2
        case "squaredcos_cap_v2":
            times = np.arange(count + 1) / count
            bars = np.cos((times + 0.008) / 1.008 * np.pi / 2) ** 2
            capped: Array = np.minimum(1 - bars[1:] / bars[:-1], 0.999).astype(np.float32)
            return capped


def _evenly(settings: Settings, spacing: Spacing, steps: int) -> Array:
    """The timesteps, from the last to the first."""
    count = settings.num_train_timesteps
    match spacing:
        case "linspace":
            return np.linspace(0, count - 1, steps)[::-1]
        case "trailing":
            trailing: Array = np.round(np.arange(count, 0, -count / steps)) - 1
            return trailing
        case "leading":
            leading: Array = (np.arange(steps) * (count // steps))[::-1] + settings.steps_offset
            return leading


def _clean(prediction: Prediction, sample: Array, answer: Array, kept: np.float32) -> Array:
    """The picture that the model sees in the sample."""
    of_picture, of_noise = np.sqrt(kept), np.sqrt(1 - kept)
    clean: Array
    match prediction:
        case "epsilon":
            clean = (sample - of_noise * answer) / of_picture
        case "v_prediction":
            clean = of_picture * sample - of_noise * answer
        case "sample":
            clean = answer
    return clean


class Ddim:
    """Denoising diffusion implicit models, without noise of their own (arXiv 2010.02502)."""

    first_scale = 1.0

    def __init__(self, settings: Settings, steps: int) -> None:
        self._settings = settings
        self._kept, self._last_kept = settings.kept, settings.last_kept
        self._stride = settings.num_train_timesteps // steps
        self.timesteps = _evenly(settings, settings.spacing("leading"), steps).round().astype(np.int64)

    def scaled(self, sample: Array, step: int) -> Array:
        return sample

    def next(self, sample: Array, answer: Array, step: int, noise: Noise) -> Array:
        settings, now = self._settings, int(self.timesteps[step])
        kept, after = self._kept[now], now - self._stride
        kept_after = self._kept[after] if after >= 0 else self._last_kept
        clean = _clean(settings.prediction_type, sample, answer, kept)
        if settings.clip_sample is not False:
            clean = clean.clip(-settings.clip_sample_range, settings.clip_sample_range)
        seen = answer
        if settings.prediction_type != "epsilon":
            seen = (sample - np.sqrt(kept) * clean) / np.sqrt(1 - kept)
        moved: Array = np.sqrt(kept_after) * clean + np.sqrt(1 - kept_after) * seen
        return moved


def _noise_levels(settings: Settings, timesteps: Array, last: float) -> Array:
    """The sigma of each timestep, and of the end."""
    kept = settings.kept
    sigmas = np.sqrt((1 - kept) / kept)
    at = np.interp(timesteps, np.arange(len(sigmas)), sigmas)
    return np.append(at, last).astype(np.float32)


class Euler:
    """Euler's method on the noise levels (arXiv 2206.00364, algorithm 2 without churn)."""

    def __init__(self, settings: Settings, steps: int) -> None:
        self._prediction = settings.prediction_type
        spacing = settings.spacing("linspace")
        self.timesteps = _evenly(settings, spacing, steps).astype(np.float32)
        self._sigmas = _noise_levels(settings, self.timesteps, 0.0)
        most = float(self._sigmas.max())
        self.first_scale = most if spacing in ("linspace", "trailing") else (most**2 + 1) ** 0.5

    def scaled(self, sample: Array, step: int) -> Array:
        return sample / np.float32((self._sigmas[step] ** 2 + 1) ** 0.5)

    def next(self, sample: Array, answer: Array, step: int, noise: Noise) -> Array:
        sigma, after = self._sigmas[step], self._sigmas[step + 1]
        match self._prediction:
            case "epsilon":
                slope = answer
            case "v_prediction":
                clean = answer * (-sigma / np.sqrt(sigma**2 + 1)) + sample / (sigma**2 + 1)
                slope = (sample - clean) / sigma
            case "sample":
                slope = (sample - answer) / sigma
        moved: Array = sample + slope * (after - sigma)
        return moved


class DpmSolver:
    """DPM-Solver++ of second order, multistep, midpoint (arXiv 2211.01095)."""

    first_scale = 1.0

    def __init__(self, settings: Settings, steps: int) -> None:
        self._prediction = settings.prediction_type
        spacing, count = settings.spacing("linspace"), settings.num_train_timesteps
        timesteps: Array
        match spacing:
            case "linspace":
                timesteps = np.linspace(0, count - 1, steps + 1).round()[::-1][:-1]
            case "leading":
                stride = count // (steps + 1)
                timesteps = (np.arange(steps + 1) * stride)[::-1][:-1] + settings.steps_offset
            case "trailing":
                timesteps = np.arange(count, 0, -count / steps).round() - 1
        self.timesteps = timesteps.astype(np.int64)
        kept = settings.kept
        ends_clean = settings.final_sigmas_type == "zero"
        last = 0.0 if ends_clean else float(np.sqrt((1 - kept[0]) / kept[0]))
        sigmas = _noise_levels(settings, self.timesteps, last)
        self._alphas = (1 / np.sqrt(sigmas**2 + 1)).astype(np.float32)
        self._sigmas = sigmas * self._alphas
        with np.errstate(divide="ignore"):  # the end has no noise: its level is infinite
            self._levels = np.log(self._alphas) - np.log(self._sigmas)
        self._ends_simply = ends_clean or steps < _SHORT
        self._before: Array | None = None

    def scaled(self, sample: Array, step: int) -> Array:
        return sample

    def next(self, sample: Array, answer: Array, step: int, noise: Noise) -> Array:
        alpha, sigma = self._alphas[step], self._sigmas[step]
        clean = _clean(self._prediction, sample, answer, np.float32(alpha**2))
        before, self._before = self._before, clean
        width = self._levels[step + 1] - self._levels[step]
        grown = self._alphas[step + 1] * np.expm1(-width)
        moved: Array = (self._sigmas[step + 1] / sigma) * sample - grown * clean
        if before is None or (step == len(self.timesteps) - 1 and self._ends_simply):
            return moved
        ratio = (self._levels[step] - self._levels[step - 1]) / width
        curved: Array = moved - 0.5 * grown * ((clean - before) / ratio)
        return curved


class Lcm:
    """Latent consistency models: a few steps, each to a clean picture and back to less noise (arXiv 2310.04378)."""

    first_scale = 1.0

    def __init__(self, settings: Settings, steps: int) -> None:
        self._settings = settings
        self._kept, self._last_kept = settings.kept, settings.last_kept
        original = max(settings.original_inference_steps, steps)
        stride = settings.num_train_timesteps // original
        learned = (np.arange(1, original + 1) * stride - 1)[::-1]
        chosen = np.floor(np.linspace(0, len(learned), num=steps, endpoint=False)).astype(np.int64)
        self.timesteps = learned[chosen].astype(np.int64)

    def scaled(self, sample: Array, step: int) -> Array:
        return sample

    def next(self, sample: Array, answer: Array, step: int, noise: Noise) -> Array:
        now = int(self.timesteps[step])
        at_end = step == len(self.timesteps) - 1
        scaled = now * LCM_TIMESTEP_SCALING
        skip = np.float32(_SIGMA_DATA**2 / (scaled**2 + _SIGMA_DATA**2))
        out = np.float32(scaled / (scaled**2 + _SIGMA_DATA**2) ** 0.5)
        clean: Array = _clean(self._settings.prediction_type, sample, answer, self._kept[now])
        if self._settings.clip_sample:
            clean = clean.clip(-self._settings.clip_sample_range, self._settings.clip_sample_range)
        denoised: Array = out * clean + skip * sample
        if at_end:
            return denoised
        kept = self._kept[int(self.timesteps[step + 1])]
        fresh = noise()
        noisy: Array = np.sqrt(kept) * denoised + np.sqrt(1 - kept) * fresh
        return noisy
