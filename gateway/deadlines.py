"""When a caller stops waiting, and the end of what nobody waits for any more."""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

from gateway.errors import DeadlineExceeded, MalformedBody
from gateway.limitsconfig import ServiceLimits
from gateway.steps import Begun, in_task
from gateway.types import Call

R = TypeVar("R")

HEADER = b"x-tensorgate-deadline-ms"
_LONGEST_MS = 86_400_000


def deadline_of(call: Call, limits: ServiceLimits, arrived: Callable[[], float]) -> float | None:
    """On the monotonic clock: as the protocol or the header says, else as configured. Raises MalformedBody."""
    deadline, named = call.deadline, call.header(HEADER)
    if named is None and not limits.deadline_ms and not limits.max_deadline_ms:
        return deadline
    came = arrived()
    if named is not None:
        own = came + _milliseconds(named) / 1000
        deadline = own if deadline is None else min(own, deadline)
    if deadline is None and limits.deadline_ms:
        deadline = came + limits.deadline_ms / 1000
    if deadline is not None and limits.max_deadline_ms:
        deadline = min(deadline, came + limits.max_deadline_ms / 1000)
    return deadline


def _milliseconds(text: str) -> int:
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= _LONGEST_MS:
        return int(text)
    raise MalformedBody(
        f"X-Tensorgate-Deadline-Ms: expected a whole number of milliseconds from 1 to {_LONGEST_MS}, got {text[:32]!r}"
    )


def too_late() -> DeadlineExceeded:
    """What a caller is told whose deadline has passed."""
    return DeadlineExceeded("the deadline has passed")


async def in_time(run: Coroutine[Any, Any, R], deadline: float) -> R:
    """What it gives before the deadline; then it is cancelled. Raises DeadlineExceeded."""
    left = deadline - monotonic()
    if left <= 0:
        run.close()
        raise too_late()
    return await within(run, left, too_late)


async def within(run: Coroutine[Any, Any, R], seconds: float, late: Callable[[], Exception]) -> R:
    """What it gives in so many seconds; then it is cancelled, and `late` is raised."""
    # PERF: a timer costs 7 us, and most runs never wait: only if there is a wait is there a timer.
    running = run.__await__()
    try:
        waits_for = next(running)
    except StopIteration as done:
        result: R = done.value
        return result
    await in_task()
    try:
        async with asyncio.timeout(seconds) as limit:
            result = await Begun(running, waits_for)
            return result
    except TimeoutError:
        if limit.expired():
            raise late() from None
        raise
