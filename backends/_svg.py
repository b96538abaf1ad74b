"""SVG images made into PNG, out of the gateway's reach: a few bytes of SVG may ask for hours and all memory.

Everything a request holds is drawn by one process, which ends with it.
"""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from backends._environment import kept_environment
from gateway.errors import Overloaded

MOST_BYTES = 4 << 20
"""Of one file."""
MEGABYTES = 768
"""What the process may map, of which Python and the library take about 60."""
CPU_SECONDS = 2
SECONDS = 5.0
"""For a machine whose processors are busy."""
AT_ONCE = 2
"""Processes; who comes later waits."""
MOST_WAITING = 8
"""Requests, those whose drawings are made included."""

_BEGINNINGS = (b"<svg", b"<?xml", b"<!--", b"<!DOCTYPE svg")
_CHILD = Path(__file__).with_name("_svg_child.py")
_DRAWN = b"+"

_slots = ThreadPoolExecutor(AT_ONCE, "svg")
_jobs: set["_Job"] = set()


class DrawError(Exception):
    """Why an image is not drawn; the text completes "item 3 is ..."."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place
        """Of the image among those that were to be drawn."""


def is_svg(data: bytes) -> bool:
    """Whether the file begins as SVG images do."""
    return data[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_BEGINNINGS)


async def draw(files: Sequence[bytes], most_pixels: int) -> list[bytes]:
    """The images as PNG, each at its own size. Raises DrawError, or Overloaded."""
    for place, file in enumerate(files):
        if len(file) > MOST_BYTES:
            raise DrawError(place, f"an SVG image of more than {MOST_BYTES >> 20} MiB")
    if len(_jobs) >= MOST_WAITING:
        raise Overloaded(f"{MOST_WAITING} requests wait for their SVG images to be drawn already", retry_after=SECONDS)
    job = _Job(files, most_pixels)
    _jobs.add(job)
    try:
        return await asyncio.get_running_loop().run_in_executor(_slots, job.run)
    finally:
        _jobs.discard(job)
        job.give_up()


class _Job:
    """The drawings of one request."""

    def __init__(self, files: Sequence[bytes], most_pixels: int) -> None:
        self._files = files
        self._limits = tuple(map(str, (MEGABYTES, CPU_SECONDS, most_pixels)))
        self._child: subprocess.Popen[bytes] | None = None
        self._over = False

    def run(self) -> list[bytes]:
        """The images, made by a process of their own. Raises DrawError."""
        sent = b"".join(len(file).to_bytes(4, "big") + file for file in self._files)
        with self._started() as child:
            try:
                told, _ = child.communicate(sent, SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                told, _ = child.communicate()
        drawn, reason = _read(told)
        if len(drawn) == len(self._files):
            return drawn
        spent = f"an SVG image that takes more than {CPU_SECONDS} s or {MEGABYTES} MB to draw"
        raise DrawError(len(drawn), reason or ("an SVG image that cannot be drawn" if child.returncode == 1 else spent))

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._over = True
        if self._child is not None:
            self._child.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-I", "-S", str(_CHILD), _packages(), *self._limits)
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._child = child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nothing, env=kept_environment({})
        )
        if self._over:
            child.kill()
        return child


def _read(answer: bytes) -> tuple[list[bytes], str]:
    """The images that were drawn whole, and why the next one was not."""
    drawn: list[bytes] = []
    at = 0
    while answer[at : at + 1] == _DRAWN:
        start = at + 5
        at = start + int.from_bytes(answer[at + 1 : start], "big")
        if at > len(answer):
            return drawn, ""
        drawn.append(answer[start:at])
    return drawn, answer[at + 1 :].decode("utf-8", "replace")


@cache
def _packages() -> str:
    """Where the library lies, for a process that looks nowhere by itself."""
    spec = importlib.util.find_spec("resvg_py")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent.parent)
