"""Inferences answered at once and run later: so many wait, so many run, and none is lost without a word."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.config import Config
from gateway.errors import DeadlineExceeded, Forbidden, InferenceFailed, MalformedBody, NotReady, Overloaded
from gateway.inputs import Inputs
from gateway.results import Outcome, ResultsFolder, Slot

CLEANING_SECONDS = 60.0

Run = Callable[[], Awaitable[bytes]]
"""An inference to its answer's body."""

Failed = Callable[[Exception], bytes]
"""What went wrong as the body of an error; must not raise."""

log = logging.getLogger("tensorgate.results")


class Deferrals:
    """The inferences of this process that are yet to be answered."""

    def __init__(self, config: Config, base: Path) -> None:
        self._config = config.results
        self._folder = ResultsFolder(self._config, base) if self._config.dir else None
        self.inputs = Inputs(self._config.inputs, base, config.limits.body_bytes)
        self._turns = asyncio.Semaphore(self._config.at_once)
        self._tasks: dict[asyncio.Task[None], int] = {}
        """What waits and runs, with its bytes."""
        self._bytes = 0
        self._reserved = 0
        self._hurried = asyncio.Event()

    def prepare(self) -> None:
        """Make the folder of answers. Raises ConfigError if it cannot be had."""
        if self._folder is not None:
            self._folder.prepare()

    @property
    def pending(self) -> int:
        """Accepted and not answered yet."""
        return len(self._tasks) + self._reserved

    def admit(self, body: bytes, uri: str | None) -> None:
        """Raise what a call that would be deferred has wrong: Forbidden, MalformedBody or Overloaded."""
        if self._folder is None:
            raise Forbidden(
                "inferences are not deferred here: the configuration names no folder for them (results.dir)"
            )
        if bool(body) == bool(uri):
            raise MalformedBody("give the input either in the body or by its location" + (", not both" if body else ""))
        if uri:
            self.inputs.locate(uri)
        if self.pending >= self._config.most_pending:
            raise Overloaded(f"{self._config.most_pending} inferences wait already", retry_after=1.0)
        if self._bytes + len(body) > self._config.pending_bytes:
            raise Overloaded("the inferences that wait hold too many bytes already", retry_after=1.0)

    async def hold(self, given_id: str | None) -> Slot:
        """A place for the answer of a call that was admitted; `start` or `give_up` must follow."""
        assert self._folder is not None
        self._reserved += 1
        try:
            return await asyncio.to_thread(self._folder.hold, given_id)
        except BaseException:
            self._reserved -= 1
            raise

    def start(self, slot: Slot, body_bytes: int, run: Run, failed: Failed) -> None:
        """Run it when its turn comes, and keep what it answers."""
        self._reserved -= 1
        self._bytes += body_bytes
        task = asyncio.create_task(self._run(slot, run, failed), name=f"deferred {slot.name}")
        self._tasks[task] = body_bytes
        task.add_done_callback(self._ended)

    def give_up(self, slot: Slot) -> None:
        """Nothing will be answered after all."""
        assert self._folder is not None
        self._reserved -= 1
        self._folder.let_go(slot)

    async def clean(self) -> None:
        """Remove old answers again and again, until cancelled."""
        if self._folder is None:
            return
        if left := await asyncio.to_thread(self._folder.unfinished):
            log.warning("%d deferred inferences of another process, or of one that died, have no answer yet", left)
        while True:
            try:
                if gone := await asyncio.to_thread(self._folder.clean, time.time()):
                    log.info("%d old results removed", gone)
            except OSError:
                log.exception("the results folder could not be cleaned")
            await asyncio.sleep(min(CLEANING_SECONDS, self._config.keep_seconds))

    def hurry(self) -> None:
        """Wait for nothing any more."""
        self._hurried.set()

    async def close(self, seconds: float) -> None:
        """Let what is pending finish, at most so long; the rest is answered with an error."""
        if not self._tasks:
            return
        log.info("waiting for %d deferred inferences", len(self._tasks))
        hurried = asyncio.create_task(self._hurried.wait())
        until = asyncio.get_running_loop().time() + seconds
        while self._tasks and not hurried.done() and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait([*self._tasks, hurried], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        stopped = list(self._tasks)
        if stopped:
            log.warning("%d deferred inferences are stopped unfinished", len(stopped))
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, hurried, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._bytes -= self._tasks.pop(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s has no answer", task.get_name(), exc_info=task.exception())

    async def _run(self, slot: Slot, run: Run, failed: Failed) -> None:
        """From its turn to its answer, which is there even when it is stopped."""
        seconds = self._config.run_seconds
        outcome: Outcome = "error"
        try:
            async with self._turns, asyncio.timeout(seconds) as limit:
                body = await run()
                outcome = "out"
        except asyncio.CancelledError:
            body = failed(NotReady("the server was stopped before the inference was done; send it again"))
        except Exception as error:
            late = isinstance(error, TimeoutError) and limit.expired()
            body = failed(DeadlineExceeded(f"the inference took more than {seconds:g} seconds") if late else error)
        if outcome == "error":
            log.warning("%s failed", slot.name)
        await self._keep(slot, outcome, body, failed)

    async def _keep(self, slot: Slot, outcome: Outcome, body: bytes, failed: Failed) -> None:
        assert self._folder is not None
        try:
            await asyncio.to_thread(self._folder.keep, slot, outcome, body)
        except OSError:
            log.exception("the answer of %s could not be written", slot.name)
            body = failed(InferenceFailed("the answer could not be written"))
            await asyncio.to_thread(self._folder.keep, slot, "error", body)
