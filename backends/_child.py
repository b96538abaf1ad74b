"""The process that runs a user's class: started by path, with the user's interpreter, by the gateway's pool.

It calls the class from one thread, one call at a time; only streams that wait for their reader let others pass.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from _contract import Model
from _frames import CANCEL, CREDIT, END, ERROR, PART, PARTS_AT_ONCE, READY, REQUEST, START, Frame, Reader, Tensors, pack
from _payloads import Refused

PR_SET_PDEATHSIG = 1
UNUSED_BYTES = 1 << 30
PAGE = resource.getpagesize()
LOOK_SECONDS = 0.001
"""PERF: how long frames that are there need not be looked for again; a look costs as much as a short call."""
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Request(NamedTuple):
    """A call that waits for its turn."""

    number: int
    call: str
    stream: bool
    tensors: dict[str, Any]
    parameters: dict[str, Any]


class Stream:
    """A call that is answered in parts."""

    def __init__(self, parts: Iterator[Any], parameters: dict[str, Any]) -> None:
        self.parts = parts
        self.parameters = parameters
        self.credit = PARTS_AT_ONCE

    def close(self) -> None:
        """Let the generator end itself."""
        if hasattr(self.parts, "close"):
            self.parts.close()


class Gone(EOFError):
    """The gateway does not listen any more. A class's own connections may break too: that is its failure only."""


class Line:
    """The connection to the gateway."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = Reader()
        self._looked = 0.0

    def frames(self, wait: bool) -> list[Frame]:
        """What has come; with `wait`, at least one frame. Raises EOFError once the gateway is gone."""
        found: list[Frame] = []
        if not wait and time.monotonic() - self._looked < LOOK_SECONDS:
            return found
        while True:
            self._looked = time.monotonic()
            if not (wait and not found) and not select.select([self._socket], [], [], 0)[0]:
                return found
            count = self._socket.recv_into(self._reader.space())
            if not count:
                raise EOFError
            found += self._reader.filled(count)

    def send(self, kind: int, header: dict[str, Any], tensors: Tensors | None = None) -> None:
        """Blocks while the gateway does not read. Raises TypeError or ValueError for what cannot be sent, and Gone."""
        for buffer in pack(kind, header, tensors):
            try:
                self._socket.sendall(buffer)
            except (BrokenPipeError, ConnectionResetError):
                raise Gone from None


class Server:
    """Answers the gateway's calls with a model."""

    def __init__(self, line: Line, model: Model, folder: str) -> None:
        self._line = line
        self._model = model
        self._folder = folder
        self._waiting: deque[Request] = deque()
        self._streams: dict[int, Stream] = {}
        self._stream_is_next = False

    def serve(self) -> None:
        """Until the gateway is gone."""
        while True:
            flowing = [number for number, stream in self._streams.items() if stream.credit]
            for frame in self._line.frames(wait=not self._waiting and not flowing):
                self._take(frame)
            if flowing and (self._stream_is_next or not self._waiting):
                for number in flowing:
                    self._advance(number)
                self._stream_is_next = False
            elif self._waiting:
                self._run(self._waiting.popleft())
                self._stream_is_next = True

    def _take(self, frame: Frame) -> None:
        number = frame.header["id"]
        if frame.kind == REQUEST:
            header = frame.header
            self._waiting.append(Request(number, header["call"], header["stream"], frame.tensors, header["parameters"]))
        elif frame.kind == CREDIT and number in self._streams:
            self._streams[number].credit += frame.header["parts"]
        elif frame.kind == CANCEL:
            self._cancel(number)

    def _cancel(self, number: int) -> None:
        found = [request for request in self._waiting if request.number == number]
        for request in found:
            self._waiting.remove(request)
        stream = self._streams.pop(number, None)
        if stream is not None:
            with self._failures(number):
                stream.close()
        if found or stream is not None:
            self._line.send(END, {"id": number, "parameters": {}})

    def _run(self, request: Request) -> None:
        with self._failures(request.number):
            value = self._model.call(request.call, request.tensors, request.parameters, request.stream)
            if hasattr(value, "__next__"):
                if request.stream:
                    self._streams[request.number] = Stream(value, request.parameters)
                    return
                value = self._model.joined(value)
            answer = self._model.answer(value, request.parameters)
            self._line.send(END, {"id": request.number, "parameters": answer.parameters}, answer.outputs)

    def _advance(self, number: int) -> None:
        """The next part of a stream, or its end."""
        stream = self._streams.get(number)
        if stream is None:
            return
        over = True
        with self._failures(number):
            try:
                value = next(stream.parts)
            except StopIteration:
                self._line.send(END, {"id": number, "parameters": {}})
            else:
                part = self._model.answer(value, stream.parameters, whole=False)
                self._line.send(PART, {"id": number, "parameters": part.parameters}, part.outputs)
                stream.credit -= 1
                over = False
        if over:
            self._streams.pop(number, None)

    @contextlib.contextmanager
    def _failures(self, number: int) -> Iterator[None]:
        """Whatever the class raises is told to the gateway, and what was not meant for the caller to the log."""
        try:
            yield
        except Gone:
            raise
        except BaseException as error:
            told = failure(error, self._model, self._folder)
            if told["kind"] != "user":
                print_trace(error)
            self._line.send(ERROR, {"id": number, **told})


def print_trace(error: BaseException) -> None:
    """The class's own part of the traceback, for the log."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((HERE, "<frozen ")):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def failure(error: BaseException, model: Model | None, folder: str) -> dict[str, Any]:
    """What the gateway is told of an exception: no path, no traceback."""
    custom = model.custom_failure(error) if model is not None else None
    if custom is not None:
        error = custom
    if hasattr(error, "status_code") and hasattr(error, "to_dict"):
        status, reason = error.status_code, getattr(error, "reason", None) or "MICROSERVICE_BAD_DATA"
        error = Refused(str(getattr(error, "message", error)), status, str(reason))
    if isinstance(error, Refused):
        status = error.status if isinstance(error.status, int) and 400 <= error.status < 600 else 500
        return {
            "kind": "user", "message": error.message, "status": status, "reason": error.reason, "body": error.body,
        }  # fmt: skip
    if isinstance(error, MemoryError):
        return {"kind": "memory", "message": str(error)}
    if isinstance(error, OSError) and error.filename is not None:
        return {"kind": "failed", "message": f"{error.strerror}: {os.path.basename(os.fsdecode(error.filename))}"}
    if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        return {"kind": "failed", "message": f"the class raised {type(error).__name__}"}
    return {"kind": "failed", "message": without_paths(str(error).replace(folder + os.sep, ""))}


def without_paths(text: str) -> str:
    """The text with absolute paths cut down to their last part; what only looks like one, such as a URL's, stays."""
    return _PATH.sub(lambda found: found[2] if os.path.exists(found[1]) else found[0], text)


_PATH = re.compile(r"(?<![\w./:])(/[\w.+~@-]+)(?:/[\w.+~@-]+)*/([\w.+~@-]+)")


# The process...


def die_with(parent: int) -> None:
    """End when the gateway does, however it ends; a class that loops would not notice by itself."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was quicker
        os._exit(1)


def limit_memory(limit: int) -> None:
    """A sudden claim far beyond the limit raises MemoryError; the gateway sees to what is really held.

    Claimed and never used are the stacks of threads and the pools of allocators, hence the distance.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/statm", encoding="ascii") as file:
            held = int(file.read().split()[5]) * PAGE
        most = held + 2 * limit + UNUSED_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def load(line: Line, start: dict[str, Any]) -> Model | None:
    """The model, or None once the gateway has been told why there is none."""
    folder = start["folder"]
    # PERF: an empty first entry would mean the current folder as well, looked at for every import.
    sys.path.insert(0, folder)
    sys.path.append(start["shims"])
    try:
        model = Model(start["entry"], start["parameters"])
        line.send(READY, {"id": 0, **model.describe()})
        return model
    except BaseException as error:
        print_trace(error)
        told = failure(error, None, folder)
        told["message"] = f"{type(error).__name__}: {told['message']}" if told["kind"] != "user" else told["message"]
        line.send(ERROR, {"id": 0, **told})
        return None


def main() -> None:
    """Serve the gateway that holds the other end of the connection."""
    sys.path.pop(0)  # where this file lies: its neighbours are not for the class to import
    connection, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    faulthandler.enable()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line = Line(socket.socket(fileno=connection))
    os.set_inheritable(connection, False)
    with contextlib.suppress(EOFError):
        start = line.frames(wait=True)[0]
        assert start.kind == START
        if start.header["memory_bytes"]:
            limit_memory(start.header["memory_bytes"])
        model = load(line, start.header)
        if model is not None:
            Server(line, model, start.header["folder"]).serve()
    sys.stdout.flush()
    os._exit(0)  # threads of the class must not keep the process


if __name__ == "__main__":
    main()
