"""A worker's first moments: started, waited for, or given up with the reason."""

import asyncio
from typing import Any

from backends._worker import Worker, closed
from gateway.errors import LoadFailed


async def begun(worker: Worker, started: asyncio.Future[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What the worker says of itself once it is ready, as `started` is told. Raises LoadFailed or OutOfMemory."""
    try:
        await worker.start()
        async with asyncio.timeout(seconds):
            either: set[asyncio.Future[Any]] = {started, worker.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            return started.result()
        ending = await worker.close()
    except TimeoutError:
        await _give_up(worker)
        raise LoadFailed(f"the worker was not ready after {seconds:g} s") from None
    except OSError as error:
        await _give_up(worker)
        raise LoadFailed(f"the worker cannot be started: {error.strerror}") from None
    except BaseException:
        await _give_up(worker)
        raise
    said = f": {worker.last_words}" if worker.last_words else "; the log has what it printed"
    raise LoadFailed(f"the worker {ending} before it was ready{said}")


async def _give_up(worker: Worker) -> None:
    worker.kill("was not wanted any more")
    await closed(worker)
