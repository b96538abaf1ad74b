"""The next token of one choice, drawn from the logits as its settings want, with a generator of its own.

The same seed draws the same numbers whoever else is in the batch.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.generate.settings import Settings
from backends.generate.vocabulary import Vocabulary

Logits = NDArray[np.float32]

_FORBIDDEN = np.float32(-np.inf)
_LEAST = np.finfo(np.float32).min
_FIRST_LOOK = 128
"""PERF: sorting a vocabulary of 49k takes 3 ms; the most likely few nearly always hold the wanted probability."""


class Sampler:
    """One choice's way of drawing."""

    def __init__(self, settings: Settings, choice: int, vocabulary_size: int, prompt: Sequence[int]) -> None:
        self._settings = settings
        self.greedy = settings.temperature == 0 or settings.top_p == 0 or settings.top_k == 1
        self._random: Any = None
        if not self.greedy:
            seed = None if settings.seed is None else [settings.seed & ((1 << 64) - 1), choice]
            self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._counts: NDArray[np.float32] | None = None
        self._seen: NDArray[np.bool_] | None = None
        if settings.presence_penalty or settings.frequency_penalty:
            self._counts = np.zeros(vocabulary_size, np.float32)
        if settings.repetition_penalty != 1:
            self._seen = np.zeros(vocabulary_size, np.bool_)
            self._seen[list(prompt)] = True
        self._biased = np.fromiter(settings.logit_bias, np.int64, len(settings.logit_bias))
        self._bias = np.fromiter(settings.logit_bias.values(), np.float32, len(settings.logit_bias))
        self._bias[self._bias <= -100] = _FORBIDDEN
        self.plain = self._counts is None and self._seen is None and not settings.logit_bias

    def choose(self, logits: Logits, allowed: NDArray[np.bool_] | None, forbidden: Iterable[int] = ()) -> int:
        """The next token. Shapes: logits [vocabulary], allowed [vocabulary] or None for all."""
        forbidden = list(forbidden)
        if not self.plain or allowed is not None or forbidden:
            logits = self._shaped(logits)
            if forbidden:
                logits[forbidden] = _FORBIDDEN
            if allowed is not None:
                # What the bias forbids is still better than what the grammar does.
                np.maximum(logits, _LEAST, out=logits)
                logits[~allowed] = _FORBIDDEN
        token = int(logits.argmax()) if self.greedy or not np.isfinite(logits.max()) else self._draw(logits)
        if self._counts is not None:
            self._counts[token] += 1
        if self._seen is not None:
            self._seen[token] = True
        return token

    def _shaped(self, logits: Logits) -> Logits:
        """A copy with the penalties and the bias."""
        settings, logits = self._settings, logits.copy()
        if self._seen is not None:
            seen = logits[self._seen]
            penalty = np.float32(settings.repetition_penalty)
            logits[self._seen] = np.where(seen > 0, seen / penalty, seen * penalty)
        if self._counts is not None:
            logits -= settings.frequency_penalty * self._counts
            logits -= settings.presence_penalty * (self._counts > 0)
        if len(self._biased):
            logits[self._biased] += self._bias
        return logits

    def _draw(self, logits: Logits) -> int:
        settings = self._settings
        weights = np.exp((logits - logits.max()) / np.float32(settings.temperature))
        candidates: NDArray[np.int64] | None = None
        if settings.min_p:
            candidates = np.flatnonzero(weights >= settings.min_p)  # the greatest weight is 1
        if settings.top_k and settings.top_k < (weights.size if candidates is None else candidates.size):
            candidates = _largest(weights, settings.top_k, candidates)
        if settings.top_p < 1:
            candidates = _nucleus(weights, settings.top_p, candidates)
        cumulated = np.cumsum(weights if candidates is None else weights[candidates], dtype=np.float64)
        place = int(np.searchsorted(cumulated, self._random.random() * cumulated[-1], side="right"))
        place = min(place, cumulated.size - 1)
        return place if candidates is None else int(candidates[place])


def _largest(weights: Logits, count: int, among: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The tokens with the greatest weights, in the order of their ids."""
    pool = weights if among is None else weights[among]
    places = np.sort(np.argpartition(pool, pool.size - count)[pool.size - count :])
    return places if among is None else among[places]


def _nucleus(weights: Logits, share: float, among: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The fewest tokens that together have that share of the probability."""
    pool = weights if among is None else weights[among]
    wanted = share * float(pool.sum(dtype=np.float64))
    look = min(_FIRST_LOOK, pool.size)
    while True:
        top = np.argpartition(pool, pool.size - look)[pool.size - look :]
        top = top[np.argsort(-pool[top], kind="stable")]
        cumulated = np.cumsum(pool[top], dtype=np.float64)
        if cumulated[-1] >= wanted or look == pool.size:
            # In the order of their ids, so that a last digit that differs between batches moves no border far.
            top = np.sort(top[: int(np.searchsorted(cumulated, wanted)) + 1])
            return top if among is None else among[top]
        look = min(look * 8, pool.size)


def logprob_entry(logits: Logits, token: int, count: int, vocabulary: Vocabulary) -> dict[str, Any]:
    """What a token's probability was, before any setting, and that of the `count` likeliest."""
    top = np.argpartition(logits, logits.size - count)[logits.size - count :] if count else np.empty(0, np.int64)
    top = top[np.argsort(-logits[top], kind="stable")]
    greatest = float(logits.max())
    total = greatest + float(np.log(np.exp(logits - np.float32(greatest)).sum(dtype=np.float64)))

    def entry(one: int) -> dict[str, Any]:
        value = min(0.0, float(logits[one]) - total)
        return {
            "token": vocabulary.shown([one]),
            "token_id": one,
            "logprob": max(value, -9999.0),
            "bytes": list(vocabulary.bytes[one]),
        }

    return entry(token) | {"top_logprobs": [entry(int(one)) for one in top]}
