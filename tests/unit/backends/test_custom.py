"""Servers of the user's: which settings make one, and what is told of one that does not come up."""

from pathlib import Path
from typing import Any

import pytest
from scene import on_loop

from backends.custom import Config, load
from gateway.config import convert
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest


def source(folder: Path) -> ModelSource:
    return ModelSource("notes", 1, folder, folder)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({}, "give either command or url"),
        ({"command": ["x"], "url": "http://a"}, "give either command or url"),
        ({"url": "ftp://a"}, "expected http://HOST"),
        ({"url": "http://user:pass@a"}, "expected http://HOST"),
        ({"url": "http://a:99999"}, "expected http://HOST"),
        ({"url": "http://a/?x=1"}, "expected http://HOST"),
        ({"command": ["no-such-program"]}, "exit code 1 before it was ready; it said: no-such-program: No such file"),
        (
            {"command": ["python", "-c", "print('no licence'); exit(7)"]},
            "exit code 7 before it was ready; it said: no lic",
        ),
        (
            {"command": ["python", "-c", "import time; time.sleep(9)"], "start_seconds": 0.3},
            "was not ready within 0.3 s",
        ),
        ({"command": ["a\0b"]}, "its command line cannot be used"),
    ],
)
def test_servers_that_do_not_come_up(tmp_path: Path, table: dict[str, Any], reason: str) -> None:
    """The load fails with the reason, and the process is gone."""

    @on_loop
    async def run() -> None:
        with pytest.raises(LoadFailed) as failed:
            await load(source(tmp_path), convert(table, Config, "custom"))
        assert reason in str(failed.value)
        assert str(tmp_path) not in str(failed.value)

    run()


def test_tensors_are_refused(tmp_path: Path) -> None:
    """A custom service has no signature to run."""

    @on_loop
    async def run() -> None:
        backend = await load(source(tmp_path), Config(url="http://127.0.0.1:9/base/"))
        assert backend.metadata.extras["upstream"].url == "http://127.0.0.1:9/base"
        with pytest.raises(InvalidTensor, match="call its own paths under /services/NAME/"):
            await backend.infer(InferenceRequest({}))
        await backend.close()

    run()
