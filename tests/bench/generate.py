"""Compares the running batch with a plain loop that answers one request after the other, on the same session.

    python tests/bench/generate.py                  half a minute, on the demo's language model
    python tests/bench/generate.py --size smollm    some minutes, on random weights of SmolLM2-135M's shape

Run it in the environment of scripts/setup. The plain loop reads the prompt, then takes the likeliest token again and
again, with nothing else around it: no scheduler, no text, no stop strings. The batch is measured as clients see it,
through the backend's streams on an event loop. Both write the same numbers of tokens, and take turns round by round, so
that whatever else the machine does hits both; the median of the rounds' ratios is shown. Only ratios mean anything on
another machine. The aims: 0.8 times the plain loop for one stream; for eight, 1.8 times on the demo's model and 2.5
times on the larger.
"""

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import decoder_model
import numpy as np
import uvloop
from msgspec import Struct

from backends import generate
from backends.generate import GenerateBackend, layout
from backends.generate.decoder import Decoder, open_decoder
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest

DEMO = Path(__file__).resolve().parents[2] / "configs" / "models" / "tinychat" / "1"
STREAMS = (1, 4, 8, 16)
AIMS = {"tinychat": {1: 0.8, 8: 1.8}, "smollm": {1: 0.8, 8: 2.5}}
THREADS = {"tinychat": 1, "smollm": os.cpu_count() or 1}
PROMPT_TOKENS = 24


class Round(Struct):
    """One measurement of the batch."""

    tokens_per_s: float
    first_ms: Sequence[float]
    gaps_ms: Sequence[float]
    lag_ms: float
    """The longest that the event loop was held up."""


def main() -> None:
    """Measure and print."""
    options = _options()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}")
    print(", ".join(f"{name} {version(name)}" for name in ("onnxruntime-gpu", "tokenizers", "llguidance")))
    with tempfile.TemporaryDirectory() as scratch:
        folder = DEMO
        if options.size == "smollm":
            folder = Path(scratch)
            decoder_model.write(folder, DEMO, decoder_model.SMOLLM)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_compare(folder, options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="see the top of this file")
    parser.add_argument("--size", choices=sorted(AIMS), default="tinychat")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    return parser.parse_args()


async def _compare(folder: Path, options: argparse.Namespace) -> None:
    config = generate.Config(slots=max(STREAMS), context_length=512, threads=THREADS[options.size])
    backend = await generate.load(ModelSource("bench", 1, folder, folder), config)
    assert isinstance(backend, GenerateBackend)
    described = layout.read_layout(folder, folder)
    plain = open_decoder(described, folder, folder, 1, 512, 256, config.threads)
    print(
        f"{options.size}: answers of {options.tokens} tokens, tokens/s in all; ratios are medians of {options.rounds}"
    )
    print(
        f"{'streams':>8} {'plain':>8} {'batch':>8} {'ratio':>6} {'aim':>5} "
        f"{'first ms':>9} {'p99 gap ms':>11} {'lag ms':>7}"
    )
    for streams in STREAMS:
        loops, batches = [], []
        for number in range(options.rounds):
            prompts = _prompts(streams, number)
            loops.append(_plain(plain, prompts, options.tokens))
            batches.append(await _batch(backend, prompts, options.tokens))
        ratio = statistics.median(batch.tokens_per_s / loop for batch, loop in zip(batches, loops, strict=True))
        gaps = [gap for batch in batches for gap in batch.gaps_ms]
        firsts = [first for batch in batches for first in batch.first_ms]
        aim = AIMS[options.size].get(streams)
        print(
            f"{streams:>8} {statistics.median(loops):>8,.0f} "
            f"{statistics.median(batch.tokens_per_s for batch in batches):>8,.0f} {ratio:>6.2f} "
            f"{'' if aim is None else aim:>5} {statistics.median(firsts):>9.1f} {np.percentile(gaps, 99):>11.1f} "
            f"{max(batch.lag_ms for batch in batches):>7.1f}"
        )
    await backend.close()


def _prompts(count: int, number: int) -> list[list[int]]:
    """Prompts that share no beginning."""
    draw = np.random.Generator(np.random.PCG64([count, number]))
    return [draw.integers(4, 1000, PROMPT_TOKENS).tolist() for _ in range(count)]


def _plain(decoder: Decoder, prompts: Sequence[Sequence[int]], count: int) -> float:
    """Tokens a second, one prompt after the other."""
    began = time.perf_counter()
    for prompt in prompts:
        length = len(prompt)
        token = int(decoder.prefill(0, 0, prompt)[-1].argmax())
        for _ in range(count - 1):
            token = int(decoder.decode([length], [token], [0])[0].argmax())
            length += 1
    return len(prompts) * count / (time.perf_counter() - began)


async def _batch(backend: GenerateBackend, prompts: Sequence[Sequence[int]], count: int) -> Round:
    """The same by as many streams at a time."""
    empty = np.array([""], object)
    first: list[float] = []
    gaps: list[float] = []
    lag = 0.0

    async def one(prompt: Sequence[int]) -> None:
        parameters = {"prompt_token_ids": [prompt], "max_tokens": count, "temperature": 0, "ignore_eos": True}
        began = last = time.perf_counter()
        told = 0
        async for part in backend.stream(InferenceRequest({"prompt": empty}, parameters=parameters, stream=True)):
            now = time.perf_counter()
            (gaps if told else first).append((now - (last if told else began)) * 1e3)
            last, told = now, told + len(part.parameters["token_ids"])

    async def watch() -> None:
        nonlocal lag
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            lag = max(lag, (time.perf_counter() - began - 0.001) * 1e3)

    watching = asyncio.ensure_future(watch())
    began = time.perf_counter()
    await asyncio.gather(*(one(prompt) for prompt in prompts))
    seconds = time.perf_counter() - began
    watching.cancel()
    return Round(len(prompts) * count / seconds, first, gaps, lag)


if __name__ == "__main__":
    main()
