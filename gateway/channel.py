"""Questions and answers between two processes over a Unix socket: length-prefixed JSON, bounded, never pickled."""

import asyncio
import contextlib
import itertools
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

MOST_BYTES = 64 << 20
"""Of one message."""
MOST_ASKED = 4096
"""Questions of one side that the other has not answered yet."""

_LENGTH = struct.Struct("<I")

Question = TypeVar("Question", bound=Struct)
Answer = TypeVar("Answer", bound=Struct)
Other = TypeVar("Other", bound=Struct)

log = logging.getLogger("tensorgate.processes")


class ChannelClosed(Exception):
    """The other process has gone, or does not speak as it should."""


class _Frame(Struct, frozen=True, array_like=True):
    number: int
    answers: bool
    message: msgspec.Raw


class Channel(Generic[Question]):
    """This process's end; `handle` answers what the other end asks, each question in a task of its own."""

    def __init__(self, sock: socket.socket, questions: Any, handle: Callable[[Question], Awaitable[Struct]]) -> None:
        self._sock = sock
        self._handle = handle
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._decode_frame = msgspec.json.Decoder(_Frame).decode
        self._decode: Callable[[msgspec.Raw], Question] = msgspec.json.Decoder(questions, dec_hook=_rich).decode
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None
        self._opened = asyncio.Event()
        self.closed = asyncio.Event()

    async def run(self) -> None:
        """Read until the other end closes."""
        reader, self._writer = await asyncio.open_connection(sock=self._sock, limit=1 << 16)
        self._opened.set()
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if length > MOST_BYTES:
                    raise ChannelClosed
                self._take(self._decode_frame(await reader.readexactly(length)))
        except (OSError, EOFError, ChannelClosed, msgspec.MsgspecError):
            pass
        finally:
            self.closed.set()
            self._writer.close()
            for waiting in self._asked.values():
                if not waiting.done():
                    waiting.set_exception(ChannelClosed())
            for task in self._answering:
                task.cancel()

    async def ask(self, question: Struct, answer: type[Other], seconds: float | None = None) -> Other:
        """What the other end answers. Raises ChannelClosed, or TimeoutError after so many seconds."""
        await self._opened.wait()
        if self.closed.is_set() or len(self._asked) >= MOST_ASKED:
            raise ChannelClosed
        number = next(self._numbers)
        waiting = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(number, False, question)
            async with asyncio.timeout(seconds):
                said = await waiting
            return msgspec.json.decode(said, type=answer, dec_hook=_rich)
        finally:
            del self._asked[number]

    def _take(self, frame: _Frame) -> None:
        if frame.answers:
            waiting = self._asked.get(frame.number)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame.message)
            return
        if len(self._answering) >= MOST_ASKED:
            raise ChannelClosed
        task = asyncio.create_task(self._answer(frame.number, self._decode(frame.message)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, number: int, question: Question) -> None:
        try:
            self._send(number, True, await self._handle(question))
        except ChannelClosed:
            pass
        except Exception:
            log.exception("a question between processes could not be answered: %s", type(question).__name__)
            self.close()

    def _send(self, number: int, answers: bool, message: Struct) -> None:
        data = self._encode((number, answers, message))
        if len(data) > MOST_BYTES or self._writer is None or self.closed.is_set():
            raise ChannelClosed
        self._writer.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Let the other end notice."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _rich(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, Path):
        return kind(value)
    raise NotImplementedError(kind)
