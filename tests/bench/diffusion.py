"""Compares the time to draw a picture with that of the ONNX Runtime calls which that takes, and nothing else.

    python tests/bench/diffusion.py             some seconds, on the demo's model of digits
    python tests/bench/diffusion.py --side 64   larger pictures: more work in each call

Run it in the environment of scripts/setup. The calls of one drawing are recorded, inputs and all, and made again one
after the other in a plain loop. Drawings, as clients see them through the backend on an event loop, and plain loops
take turns, so that whatever else the machine does hits both; shown are the median of the rounds' ratios, and the ratio
of the quickest drawing to the quickest loop, which a busy machine disturbs the least. What is above 1.00 is the
house's: schedulers, guidance, turns between requests, threads. The aim is 1.05 at most. Only ratios mean anything on
another machine.
"""

import argparse
import asyncio
import os
import platform
import statistics
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from msgspec import Struct
from msgspec.structs import replace

from backends import diffusion
from backends._session import Session
from backends.diffusion import DiffusionBackend
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest

DEMO = Path(__file__).resolve().parents[2] / "configs" / "models" / "painter" / "1"
SCHEDULERS = ("ddim", "euler", "dpmsolver++", "lcm")
AIM = 1.05


class Call(Struct):
    """One run of a model."""

    part: str
    session: Session
    outputs: Sequence[str]
    feed: dict[str, Any]


class Recorder:
    """A session that remembers what it was asked."""

    def __init__(self, part: str, inner: Session, calls: list[Call]) -> None:
        self._part, self._inner, self._calls = part, inner, calls

    def run(self, outputs: Sequence[str], feed: dict[str, Any], options: Any = None) -> list[Any]:
        self._calls.append(Call(self._part, self._inner, outputs, dict(feed)))
        return self._inner.run(outputs, feed, options)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="see the top of this file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--side", type=int, default=32, help="pixels of a side")
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"onnxruntime-gpu {version('onnxruntime-gpu')}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_compare(options))


async def _compare(options: argparse.Namespace) -> None:
    backend = await diffusion.load(ModelSource("bench", 1, DEMO, DEMO, device="cpu"), diffusion.Config())
    assert isinstance(backend, DiffusionBackend)
    size = f"{options.side} x {options.side}"
    print(f"{options.steps} steps, {size} pixels; medians of {options.rounds} rounds, the aim is {AIM}")
    names = ("pictures", "drawing ms", "calls ms", "calls", "ratio", "best", "UNet")
    widths = (8, 11, 9, 6, 6, 6, 6)
    print(f"{'scheduler':>12}", *(f"{name:>{width}}" for name, width in zip(names, widths, strict=True)))
    for scheduler in SCHEDULERS:
        for pictures in (1, 4):
            await _compare_one(backend, options, scheduler, pictures)
    await backend.close()


async def _compare_one(backend: DiffusionBackend, options: argparse.Namespace, scheduler: str, pictures: int) -> None:
    parameters = {"scheduler": scheduler, "steps": options.steps, "seed": 1, "n": pictures}
    parameters |= {"width": options.side, "height": options.side}
    request = InferenceRequest({"prompt": np.array(["a red seven"], object)}, parameters=parameters)
    calls = await _recorded(backend, request)
    drawings, loops, shares = [], [], []
    for _ in range(options.rounds):
        began = time.perf_counter()
        await backend.infer(request)
        drawings.append(time.perf_counter() - began)
        seconds = _repeated(calls)
        loops.append(sum(seconds))
        shares.append(sum(own for own, call in zip(seconds, calls, strict=True) if call.part == "unet") / loops[-1])
    ratio = statistics.median(drawing / loop for drawing, loop in zip(drawings, loops, strict=True))
    drawing, loop, share = statistics.median(drawings), statistics.median(loops), statistics.median(shares)
    print(
        f"{scheduler:>12} {pictures:>8} {drawing * 1e3:>11.1f} {loop * 1e3:>9.1f} "
        f"{len(calls):>6} {ratio:>6.3f} {min(drawings) / min(loops):>6.3f} {share:>6.0%}"
    )


async def _recorded(backend: DiffusionBackend, request: InferenceRequest) -> list[Call]:
    """The calls of one drawing."""
    calls: list[Call] = []
    parts = backend._parts
    assert parts is not None
    names = ("text_encoder", "unet", "vae_decoder")
    watched = {name: getattr(parts, name) for name in names}
    watched = {name: replace(part, session=Recorder(name, part.session, calls)) for name, part in watched.items()}
    backend._parts = replace(parts, **watched)
    await backend.infer(request)
    backend._parts = parts
    return calls


def _repeated(calls: Sequence[Call]) -> list[float]:
    """Seconds of each call, made again."""
    seconds = []
    for call in calls:
        began = time.perf_counter()
        call.session.run(call.outputs, call.feed)
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
