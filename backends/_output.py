"""What a worker prints, line by line into the log: as fast as it prints, but no more than the log can bear."""

import asyncio
import logging
import os
from time import monotonic

log = logging.getLogger("tensorgate.output")

LINES_PER_SECOND, LINES_AT_ONCE = 100, 1000
BYTES_PER_SECOND, BYTES_AT_ONCE = 64 << 10, 1 << 20
LINE_BYTES = 4096
READ_BYTES = 1 << 16
LAST_READS = 32
REPORT_SECONDS = 1.0

_HARMLESS = dict.fromkeys((*range(9), *range(10, 32), *range(127, 160)), "�")
"""Control characters could move a terminal's cursor over other lines."""


class Budget:
    """So much at once, and so much a second."""

    def __init__(self, rate: float, most: float, now: float) -> None:
        self._rate, self._most = rate, most
        self._left, self._at = most, now

    def take(self, amount: float, now: float) -> bool:
        """Whether there is as much left; then it is taken."""
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if amount > self._left:
            return False
        self._left -= amount
        return True


class Lines:
    """Bytes in, lines that fit the budget out; of the others their bytes are counted."""

    def __init__(self, now: float) -> None:
        self.dropped = 0
        self._lines = Budget(LINES_PER_SECOND, LINES_AT_ONCE, now)
        self._bytes = Budget(BYTES_PER_SECOND, BYTES_AT_ONCE, now)
        self._begun = b""
        self._skipping = False
        """In the middle of a line of which the beginning, or all of it, is not shown."""

    def feed(self, data: bytes, now: float) -> list[str]:
        """The lines that end in `data` and may be shown."""
        if not self._bytes.take(len(data), now):
            # PERF: not even looked at, or a worker could keep the gateway busy by printing.
            self.dropped += len(data)
            self._skipping = not data.endswith(b"\n")
            return self._flush()
        *whole, rest = data.split(b"\n")
        if whole and self._skipping:
            self.dropped += len(whole.pop(0)) + 1
            self._skipping = False
        elif whole:
            whole[0] = self._begun + whole[0]
            self._begun = b""
        shown = [line for line in whole if self._may_show(line, now)]
        if self._skipping:
            self.dropped += len(rest)
        else:
            self._begun += rest
        lines = [_text(line) for line in shown]
        if len(self._begun) > LINE_BYTES:
            self._skipping = True
            lines += self._flush()
        return lines

    def end(self) -> list[str]:
        """The line that was begun, if any."""
        return self._flush()

    def _may_show(self, line: bytes, now: float) -> bool:
        if self._lines.take(1, now):
            return True
        self.dropped += len(line) + 1
        return False

    def _flush(self) -> list[str]:
        begun, self._begun = self._begun, b""
        return [_text(begun)] if begun else []


def _text(line: bytes) -> str:
    cut = line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r").translate(_HARMLESS)
    return cut if len(line) <= LINE_BYTES else f"{cut}..."


class Output:
    """The reading end of a worker's output; it closes itself at the end."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.last = ""
        """The line that came last."""
        self._name = name
        self._descriptor = descriptor
        self._lines = Lines(monotonic())
        self._loop = asyncio.get_running_loop()
        self._report: asyncio.TimerHandle | None = None
        self._open = True
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        """Log what is left and stop reading; a process that the class has started may still hold the other end."""
        for _ in range(LAST_READS):
            if self._open and not self._read():
                break
        if self._open:
            self._end()

    def _read(self) -> bool:
        """Whether there was anything to read."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        self._show(self._lines.feed(data, monotonic()))
        if self._lines.dropped and self._report is None:
            self._report = self._loop.call_later(REPORT_SECONDS, self._tell)
        return True

    def _tell(self) -> None:
        self._report = None
        if self._lines.dropped:
            log.warning("%s: %d bytes of output are left out", self._name, self._lines.dropped)
            self._lines.dropped = 0

    def _end(self) -> None:
        self._open = False
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._show(self._lines.end())
        if self._report is not None:
            self._report.cancel()
        self._tell()

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            self.last = line
            log.info("%s: %s", self._name, line)
