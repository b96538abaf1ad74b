"""An act of the control plane is whole, whatever becomes of who asked for it."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from control_plane import plane, run

from gateway.config import ServiceConfig


def test_an_act_that_is_cancelled_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is served, what is held and what is stored stay the same."""

    async def story() -> None:
        with plane(tmp_path, {"flowers": {"model": "iris"}}) as made:
            control = made.control
            committing, may_go_on = threading.Event(), threading.Event()
            commit: Callable[..., Any] = control.store.commit

            def held(*arguments: Any) -> Any:
                committing.set()
                assert may_go_on.wait(10)
                return commit(*arguments)

            monkeypatch.setattr(control.store, "commit", held)

            def drop(services: dict[str, ServiceConfig]) -> None:
                services.clear()

            acting = asyncio.create_task(control.act("ada", drop))
            await asyncio.to_thread(committing.wait, 10)
            acting.cancel()
            await asyncio.sleep(0)
            may_go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await acting
            assert {} == control.services == control.store.head().services == made.fleet.served[-1]

    run(story)
