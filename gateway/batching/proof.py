"""The trial at load: whether rows run together are answered as rows alone, and how many of them pay.

Answers need not be equal to the last bit, for runtimes pick other kernels for other sizes: float32 may differ by
1e-5, as it may between two machines. Integers, texts and booleans must be equal.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import perf_counter

import numpy as np
from msgspec import Struct

from gateway.batching.rows import joined, parted
from gateway.interfaces import Backend, Prompt
from gateway.types import InferenceRequest, InferenceResponse, Signature, Tensor, TensorSpec

TRIAL_SECONDS = 0.25
"""For one signature, after which no larger size is tried."""
TRIAL_BYTES = 64 << 20
"""Of the inputs of one run."""
GAIN = 0.9
"""What a row must cost at most in a batch, of what it costs alone."""
RUNS = 3

_TOLERANCE = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-12}

log = logging.getLogger("tensorgate.batching")


class Verdict(Struct, frozen=True):
    """What the trial says of a signature."""

    most_rows: int
    """That are worth running together; 1: none."""
    reason: str = ""
    """Why not more than one."""


async def tried(backend: Backend, signature: Signature, most_rows: int) -> Verdict:
    """Run random rows alone and together, in growing numbers."""
    try:
        return await _Trial(backend, signature, most_rows).run()
    except _Differs as found:
        return Verdict(1, str(found))
    except Exception as error:
        # The model may have good reasons to refuse random numbers.
        log.info("%s %s: no trial: %s", backend.metadata.name, signature.name, error)
        return Verdict(1, "the trial with random rows failed")


class _Differs(Exception):
    """Rows mind each other, or chance."""


class _Trial:
    """Of one signature."""

    def __init__(self, backend: Backend, signature: Signature, most_rows: int) -> None:
        self._backend = backend
        self._prompt = backend if isinstance(backend, Prompt) else None
        self._signature = signature
        random = np.random.default_rng(11)
        most = max(1, min(most_rows, TRIAL_BYTES // max(1, _row_bytes(signature))))
        self._rows = [_random_row(signature, random) for _ in range(most)]
        self._costs: dict[int, float] = {}
        self._spent = 0.0

    async def run(self) -> Verdict:
        first = self._rows[:1]
        alone, at_once = await self._timed(first)
        if not _same(alone, (await self._timed(first))[0], bitwise=True):
            raise _Differs("the same row gets different answers")
        size = 2
        while size <= len(self._rows) and self._spent < TRIAL_SECONDS:
            together, here = await self._timed(self._rows[:size])
            if at_once and not here:
                break  # more rows would leave the event loop for a thread
            await self._compare(together, size)
            await asyncio.sleep(0)  # others may be served meanwhile
            size *= 2
        return self._verdict()

    def _verdict(self) -> Verdict:
        alone = self._costs[1]
        best = min(self._costs, key=lambda size: self._costs[size] / size)
        if self._costs[best] / best > GAIN * alone:
            return Verdict(1, "it would not be faster")
        return Verdict(best)

    async def _timed(self, rows: Sequence[InferenceRequest]) -> tuple[InferenceResponse, bool]:
        """The answer to those rows together, and whether it came without leaving the event loop."""
        request, size = joined(rows, len(rows)), len(rows)
        for _ in range(RUNS):
            started = perf_counter()
            short = self._prompt.infer_now(request) if self._prompt is not None else None
            response = short or await self._backend.infer(request)
            seconds = perf_counter() - started
            self._spent += seconds
            self._costs[size] = min(seconds, self._costs.get(size, seconds))
            if self._spent > TRIAL_SECONDS:
                break
        return response, short is not None

    async def _compare(self, together: InferenceResponse, size: int) -> None:
        """The first half of the rows asked together, and the last one alone, against all of them."""
        half = size // 2
        counts = [half, size - half - 1, 1] if size > 2 else [1, 1]
        parts = parted(together, counts, size)
        for part, rows in ((parts[0], self._rows[:half]), (parts[-1], self._rows[size - 1 : size])):
            own = await self._backend.infer(joined(rows, len(rows)))
            if not _same(parted(own, [len(rows)], len(rows))[0], part):
                raise _Differs(f"rows get other answers among {size} than alone")


def _same(one: InferenceResponse, other: InferenceResponse, *, bitwise: bool = False) -> bool:
    return one.outputs.keys() == other.outputs.keys() and all(
        _close(tensor, other.outputs[name], bitwise) for name, tensor in one.outputs.items()
    )


def _close(one: Tensor, other: Tensor, bitwise: bool) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    tolerance = 0.0 if bitwise else _TOLERANCE.get(one.dtype.name, 0.0)
    if one.dtype.kind != "f":
        return bool((one == other).all())
    scale = float(np.abs(one[np.isfinite(one)], dtype=np.float64).max(initial=0.0))
    return np.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _row_bytes(signature: Signature) -> int:
    return sum(int(np.prod(_one_row(spec))) * spec.numpy_dtype.itemsize for spec in signature.inputs.values())


def _one_row(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(1 if size is None else size for size in spec.shape or (None,))


def _random_row(signature: Signature, random: np.random.Generator) -> InferenceRequest:
    return InferenceRequest(
        {name: _random_tensor(spec, random) for name, spec in signature.inputs.items()}, signature.name
    )


def _random_tensor(spec: TensorSpec, random: np.random.Generator) -> Tensor:
    """Small whole numbers for integers, for they are often places in a table."""
    shape, dtype = _one_row(spec), spec.numpy_dtype
    if dtype.kind == "O":
        return random.choice(np.array(["a", "b"], object), shape)
    return (random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)
