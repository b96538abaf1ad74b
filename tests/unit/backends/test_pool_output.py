"""A worker's output in the log: whole lines, under its name, no more than the log can bear."""

import asyncio
import logging
import os

import pytest

from backends._output import BYTES_AT_ONCE, LINE_BYTES, LINES_AT_ONCE, LINES_PER_SECOND, Lines, Output


def test_lines_are_put_together() -> None:
    """A line is shown once it is whole, however it arrives, and the last one at the end."""
    lines = Lines(0.0)
    shown = [lines.feed(piece, 0.0) for piece in (b"on", b"e\ntwo\nthr", b"ee")]
    assert [*shown, lines.end()] == [[], ["one", "two"], [], ["three"]]


def test_only_so_many_lines_a_second() -> None:
    """Beyond the burst, lines are dropped and their bytes counted; a second later there is room again."""
    lines = Lines(0.0)
    assert len(lines.feed(b"x\n" * (LINES_AT_ONCE + 5), 0.0)) == LINES_AT_ONCE
    assert lines.dropped == 10
    assert len(lines.feed(b"x\n" * 2 * LINES_PER_SECOND, 1.0)) == LINES_PER_SECOND


def test_a_flood_is_not_even_looked_at() -> None:
    """More bytes than may be shown are counted as they come; what follows begins with a whole line."""
    lines = Lines(0.0)
    assert lines.feed(b"y" * (BYTES_AT_ONCE + 1), 0.0) == []
    assert lines.dropped == BYTES_AT_ONCE + 1
    assert lines.feed(b"rest\nnext\n", 100.0) == ["next"]
    assert lines.dropped == BYTES_AT_ONCE + 6


def test_a_long_line_is_cut() -> None:
    """No line is kept in memory beyond its limit, whether it ends or not."""
    lines = Lines(0.0)
    assert lines.feed(b"z" * (LINE_BYTES + 1), 0.0) == ["z" * LINE_BYTES + "..."]
    assert lines.feed(b"z" * 100 + b"\nshort\n", 0.0) == ["short"]
    assert lines.feed(b"w" * 5000 + b"\n", 0.0) == ["w" * LINE_BYTES + "..."]


def test_control_characters_stay_out_of_the_log() -> None:
    """A line cannot move a terminal's cursor or forge another line."""
    assert Lines(0.0).feed(b"\x1b[2J\ta\rb\xff\r\n", 0.0) == ["\ufffd[2J\ta\ufffdb\ufffd"]


def test_output_goes_to_the_log_until_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Each line is logged under the name, the last without a line's end too, and what was dropped is told."""

    async def run() -> None:
        reading, writing = os.pipe()
        output = Output("m version 1", reading)
        os.write(writing, b"first\n" + b"x\n" * (LINES_AT_ONCE + 1))
        os.write(writing, b"last")
        os.close(writing)
        await asyncio.sleep(0)
        output.close()
        output.close()

    with caplog.at_level(logging.INFO, "tensorgate.output"):
        asyncio.run(run())
    told = caplog.messages
    assert told[0] == "m version 1: first"
    assert "m version 1: last" in told
    assert told[-1] == "m version 1: 4 bytes of output are left out"
