"""Tasks of which the first to end ends the others: a client that reads, and one that leaves."""

import asyncio
from typing import Any


async def until_one_ends(*tasks: asyncio.Future[Any]) -> set[asyncio.Future[Any]]:
    """Those that have ended by themselves; the others are cancelled, and over when this returns or raises."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return done
