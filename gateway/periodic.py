"""Work that is done again and again, and goes on though it fails once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable


async def again_and_again(
    work: Callable[[], Awaitable[None]], seconds: float, log: logging.Logger, complaint: str
) -> None:
    """Do it after each pause of so many seconds, until cancelled; what goes wrong is logged with the complaint."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception:
            log.exception(complaint)
