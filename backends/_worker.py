"""One worker process: started, spoken to in frames, watched and ended."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from backends._endings import ending
from backends._environment import kept_environment
from backends._frames import START, Buffer, Frame, Reader, pack
from backends._output import Output

PAGE = resource.getpagesize()
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
LAST_WORDS_SECONDS = 0.2
"""For a process that has closed its connection to end by itself, so that it is known how it did."""
GRACE_SECONDS = 2.0
"""For a process that was asked to end."""
POLL_SECONDS = 0.005
SEND_BYTES = 1 << 20


class Launch(Struct, frozen=True):
    """How a worker is started."""

    name: str
    """For the log."""
    command: tuple[str, ...]
    """Gets two more arguments: the number of its end of the connection, and the process that it must not outlive."""
    folder: Path
    """Where it works."""
    environment: Mapping[str, str]
    """Beside the few variables that every worker inherits; others could hold the gateway's secrets."""
    start: dict[str, Any]
    """The header of the frame that it gets first."""


class Worker(asyncio.BufferedProtocol):
    """The gateway's side of a process."""

    def __init__(self, launch: Launch, on_frame: Callable[["Worker", Frame], None]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the process, or its connection, is gone."""
        self.verdict = ""
        """Why the gateway ended it, if it did."""
        self.answered_at = 0.0
        """When it answered last, as `time.perf_counter` has it."""
        self._launch = launch
        self._on_frame = on_frame
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[Buffer] = []
        self._process: subprocess.Popen[bytes] | None = None
        """None before its start, and once it has been waited for."""
        self.pid = 0
        self.pidfd = -1
        self._output: Output | None = None

    async def start(self) -> None:
        """Start the process. Raises OSError."""
        ours, output = self._spawn()
        self._output = Output(self._launch.name, output)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, AttributeError):
            # The connection alone would not tell of an end that leaves children of the process behind.
            self.pidfd = os.pidfd_open(self.pid)
            loop.add_reader(self.pidfd, self._exited)
        await loop.create_unix_connection(lambda: self, sock=ours)
        self.send(pack(START, self._launch.start))

    def send(self, buffers: list[Buffer]) -> None:
        """Send a frame, if there is still somebody to read it."""
        # PERF: 20 us for a write that wakes the process, so all frames of one turn of the event loop share one.
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing += buffers

    def dismiss(self) -> None:
        """Let the process end in order: it has nothing to answer, and gets nothing more."""
        if self._transport is not None:
            self._transport.close()

    def kill(self, verdict: str) -> None:
        """End the process and its children now, whatever it is doing."""
        self.verdict = self.verdict or verdict
        self._signal(signal.SIGKILL)

    async def close(self) -> str:
        """End the process in order if it can be, and say how it ended."""
        if self._transport is not None:
            self._transport.close()
        if not await self._exits(LAST_WORDS_SECONDS if self.ended.done() else GRACE_SECONDS):
            self._signal(signal.SIGKILL)
            await self._exits(GRACE_SECONDS)
        # Whatever the class has started lives in the same session, which is ours until its leader is waited for.
        self._signal(signal.SIGKILL)
        if self._output is not None:
            self._output.close()
        self._forget()
        process, self._process = self._process, None
        code = process.poll() if process is not None else None
        return self.verdict or ending(code)

    @property
    def last_words(self) -> str:
        """The last line that the process printed, unless a path is in it."""
        last = self._output.last if self._output is not None else ""
        return "" if "/" in last else last

    def resident_bytes(self) -> int:
        """The memory that the process holds; 0 where that cannot be known."""
        if self._process is None:
            return 0
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]) * PAGE
        except (OSError, IndexError, ValueError):
            return 0

    def cpu_seconds(self) -> float:
        """What the process has computed; 0 where that cannot be known."""
        if self._process is None:
            return 0.0
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
        except (OSError, IndexError, ValueError):
            return 0.0

    def _flush(self) -> None:
        buffers, self._outgoing = self._outgoing, []
        if self._transport is None or self._transport.is_closing():
            return
        if sum(map(len, buffers)) <= SEND_BYTES:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)

    # As a protocol...

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.filled(nbytes):
                self._on_frame(self, frame)
        except Exception:
            self.kill("sent what is no answer")
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    # The process...

    def _spawn(self) -> tuple[socket.socket, int]:
        """Our ends of its connection and of its output."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            # PERF: a third less time for 600 KB, half for 64 MB; the kernel's own limit may be lower.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        output, printed = os.pipe()
        try:
            with theirs, os.fdopen(printed, "wb", 0) as sink:
                # NOTE: on the event loop's own thread, for the process dies with the thread that started it.
                self._process = subprocess.Popen(
                    [*self._launch.command, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    cwd=self._launch.folder,
                    env=kept_environment(self._launch.environment),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            os.close(output)
            raise
        self.pid = self._process.pid
        return ours, output

    def _exited(self) -> None:
        self._forget()
        # What it sent last may still be on its way; the end of the connection tells when it is not.
        asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, self._end)

    def _end(self) -> None:
        self._forget()
        if not self.ended.done():
            self.ended.set_result(None)

    def _forget(self) -> None:
        if self.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1

    async def _exits(self, seconds: float) -> bool:
        until = asyncio.get_running_loop().time() + seconds
        while self._process is not None and not self._is_over():
            if asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def _is_over(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


async def closed(worker: Worker) -> str:
    """How it ended; a process is waited for even by somebody who is called away."""
    closing = asyncio.ensure_future(worker.close())
    try:
        return await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise
