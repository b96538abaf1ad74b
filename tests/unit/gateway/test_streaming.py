"""A model's parts on their way: the first is waited for, later failures are told to the log, the version is held."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext

import numpy as np
import pytest

from gateway.streaming import Parts
from gateway.types import InferenceResponse


class Held:
    """A version that counts who holds it."""

    def __init__(self) -> None:
        self.holders = 0

    def acquire(self) -> None:
        """One more."""
        self.holders += 1

    def release(self) -> None:
        """One less."""
        self.holders -= 1


def part(number: int) -> InferenceResponse:
    """An answer's part."""
    return InferenceResponse({"y": np.array([number])})


@pytest.mark.parametrize("fails", [False, True])
def test_a_failure_behind_the_first_part_is_logged(fails: bool) -> None:
    """Once, and still raised for the adapter to tell; the end is no failure, and the version is let go either way."""
    broken = ValueError("broken")
    logged: list[Exception] = []
    held = Held()

    async def given() -> AsyncIterator[InferenceResponse]:
        yield part(1)
        yield part(2)
        if fails:
            raise broken

    async def read() -> list[int]:
        parts = Parts(given(), held, logged.append)  # type: ignore[arg-type]
        await parts.prime()
        assert held.holders == 1
        seen: list[int] = []
        with pytest.raises(ValueError, match="broken") if fails else nullcontext():
            async for one in parts:
                seen += one.outputs["y"].tolist()
        await parts.aclose()
        await parts.aclose()
        return seen

    assert asyncio.run(read()) == [1, 2]
    assert (logged, held.holders) == ([broken] if fails else [], 0)
