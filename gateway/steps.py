"""A coroutine that begins at once and needs no task as long as it waits for nothing but a `Turn`.

PERF: most requests are answered in two steps, one when their body has come and one when their batch has run. A task
for each, its context, its callbacks and two more turns of the event loop took 9 us of 66.
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

R = TypeVar("R")


class UnderWay(Protocol):
    """Where it is noted, as in a set."""

    def add(self, one: Any, /) -> None:
        """It waits."""

    def discard(self, one: Any, /) -> None:
        """It is over."""


class Turn(asyncio.Future[R]):
    """A future whose waiter, if it has no task, goes on as soon as it is done: not in the loop's next turn."""

    go_on: Callable[[], None] | None = None

    def set_result(self, result: R) -> None:
        """It has come."""
        super().set_result(result)
        self._wake()

    def set_exception(self, exception: BaseException | type[BaseException]) -> None:
        """It will not come."""
        super().set_exception(exception)
        self._wake()

    def cancel(self, msg: Any = None) -> bool:
        """Nobody waits for it any more."""
        if not super().cancel(msg):
            return False
        self._wake()
        return True

    def _wake(self) -> None:
        go_on, self.go_on = self.go_on, None
        if go_on is None:
            return
        if asyncio.current_task() is None:
            go_on()
        else:  # it must not take another's task for its own
            self.get_loop().call_soon(go_on)


class Begun:
    """A coroutine that has been run up to its first wait, or up to where it gave way to others."""

    def __init__(self, rest: Generator[Any, None, Any], waits_for: Any) -> None:
        self._rest = rest
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, None, Any]:
        waits_for = self._waits_for
        if waits_for is None:
            return (yield from self._rest)
        while True:
            try:
                yield waits_for
            except BaseException as error:
                thrown = error
            else:
                return (yield from self._rest)
            try:
                waits_for = self._rest.throw(thrown)
            except StopIteration as done:
                return done.value


class Steps:
    """One coroutine on its way."""

    __slots__ = ("_context", "_coroutine", "_loop", "_turn", "_under_way")

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, under_way: UnderWay
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._under_way = under_way
        self._context = copy_context()
        self._turn: Turn[Any] | None = None

    def go_on(self) -> None:
        """As far as the next wait. The coroutine must see to its own exceptions."""
        if self._turn is not None:
            self._turn = None
            self._under_way.discard(self)
        try:
            waits_for = self._context.run(self._coroutine.send, None)
        except (StopIteration, asyncio.CancelledError):
            return
        if isinstance(waits_for, Turn) and not waits_for.done():
            waits_for._asyncio_future_blocking = False
            waits_for.go_on = self.go_on
            self._turn = waits_for
            self._under_way.add(self)
            return
        task = self._loop.create_task(_rest(self._coroutine, waits_for), context=self._context)
        task.add_done_callback(self._under_way.discard)
        self._under_way.add(task)

    def cancel(self, msg: Any = None) -> bool:
        """Do not wait any longer."""
        return self._turn is not None and self._turn.cancel(msg)


async def _rest(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await Begun(coroutine.__await__(), waits_for)


@types.coroutine
def in_task() -> Generator[None, None, None]:
    """From here on there is a task, as much of asyncio expects: timeouts, task groups, most libraries."""
    if asyncio.current_task() is None:
        yield
