"""Coroutines that begin at once, and get a task only where they need one."""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest
from scene import on_loop

from gateway.deadlines import within
from gateway.steps import Steps, Turn, in_task

name: ContextVar[str] = ContextVar("name", default="")


class Scene:
    """What a test's coroutines have seen, and those that are under way."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.under_way: set[Any] = set()
        self.turn: Turn[Any] = Turn()

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> Steps:
        steps = Steps(coroutine, asyncio.get_running_loop(), self.under_way)
        # As a protocol's callback runs: without a task.
        asyncio.get_running_loop().call_soon(steps.go_on)
        return steps

    async def wait_for_turn(self) -> None:
        """Note what comes, and whether there is a task by then."""
        self.seen.append(("begun", asyncio.current_task() is not None))
        try:
            self.seen.append((await self.turn, asyncio.current_task() is not None))
        except BaseException as error:
            self.seen.append(type(error))
            raise


async def turns(count: int = 5) -> None:
    """Let the event loop do what is due."""
    for _ in range(count):
        await asyncio.sleep(0)


@on_loop
async def test_one_that_waits_for_a_turn_goes_on_when_it_comes() -> None:
    """In the very call that brings it, without a task, and noted as under way meanwhile."""
    scene = Scene()
    scene.begin(scene.wait_for_turn())
    await turns()
    assert scene.seen == [("begun", False)]
    assert len(scene.under_way) == 1
    asyncio.get_running_loop().call_soon(scene.turn.set_result, "mine")
    await turns()
    assert scene.seen[1:] == [("mine", False)]
    assert not scene.under_way


@on_loop
async def test_a_turn_that_comes_from_a_task_waits_for_the_next_turn_of_the_loop() -> None:
    """Else the coroutine would take that task for its own, and cancel it with its timeouts."""
    scene = Scene()
    scene.begin(scene.wait_for_turn())
    await turns()
    scene.turn.set_result("mine")
    assert scene.seen == [("begun", False)]
    await turns()
    assert scene.seen[1:] == [("mine", False)]


@on_loop
async def test_one_that_waits_for_anything_else_gets_a_task() -> None:
    """And is one of those under way until it is over."""
    scene = Scene()

    async def answer() -> None:
        await asyncio.sleep(0.01)
        scene.seen.append(asyncio.current_task() is not None)

    scene.begin(answer())
    await turns()
    assert [type(one) for one in scene.under_way] == [asyncio.Task]
    await asyncio.gather(*scene.under_way)
    await turns()
    assert (scene.seen, scene.under_way) == ([True], set())


@on_loop
async def test_who_asks_for_a_task_has_one() -> None:
    """For timeouts and the like; a turn that has come meanwhile is not lost."""
    scene = Scene()

    async def answer() -> None:
        before = asyncio.current_task()
        await in_task()
        async with asyncio.timeout(10):
            scene.seen.append((before, await scene.turn, asyncio.current_task() is not None))

    scene.begin(answer())
    await turns(1)
    scene.turn.set_result("mine")
    await turns()
    assert scene.seen == [(None, "mine", True)]


@on_loop
async def test_a_turn_within_a_time_is_waited_for_in_a_task() -> None:
    """The time is kept, and what was begun goes on where it was."""
    scene = Scene()

    async def answer() -> None:
        try:
            await within(scene.wait_for_turn(), 0.01, lambda: ValueError("late"))
        except ValueError as error:
            scene.seen.append(str(error))

    scene.begin(answer())
    await asyncio.sleep(0.1)
    assert scene.seen == [("begun", False), asyncio.CancelledError, "late"]


@on_loop
async def test_each_has_a_context_of_its_own() -> None:
    """Whoever's callback brings the turn."""
    scene = Scene()
    both: list[Turn[str]] = [Turn(), Turn()]

    async def answer(number: int) -> None:
        name.set(f"request {number}")
        scene.seen.append((await both[number], name.get()))

    for number in range(2):
        scene.begin(answer(number))
    await turns()
    for number in reversed(range(2)):
        asyncio.get_running_loop().call_soon(both[number].set_result, f"turn {number}")
    await turns()
    assert scene.seen == [("turn 1", "request 1"), ("turn 0", "request 0")]
    assert name.get() == ""


@pytest.mark.parametrize("whole", [False, True], ids=["the turn", "the steps"])
def test_cancelled_ones_see_to_their_end(whole: bool) -> None:
    """Nobody has to wait for them, and nothing is left under way."""

    @on_loop
    async def cancelled() -> None:
        scene = Scene()
        steps = scene.begin(scene.wait_for_turn())
        await turns()
        assert (steps if whole else scene.turn).cancel()
        await turns()
        assert scene.seen[1:] == [asyncio.CancelledError]
        assert not scene.under_way
        assert not steps.cancel()

    cancelled()


@on_loop
async def test_a_turn_that_fails_is_told() -> None:
    """As any future's exception."""
    scene = Scene()

    async def answer() -> None:
        try:
            await scene.turn
        except ValueError as error:
            scene.seen.append(str(error))

    scene.begin(answer())
    await turns()
    asyncio.get_running_loop().call_soon(scene.turn.set_exception, ValueError("no"))
    await turns()
    assert scene.seen == ["no"]
