"""What is known of one request while it is answered."""

import itertools
import secrets
from collections.abc import Iterator
from contextvars import ContextVar
from time import monotonic, perf_counter

from gateway.canary import Variant
from gateway.types import Call

CLIENT_GONE = 499
"""The status of a request whose client left before there was an answer."""

STAGES = ("receive", "queue", "decode", "batch", "run", "encode")
RECEIVE, QUEUE, DECODE, BATCH, RUN, ENCODE = range(len(STAGES))
"""What happens to a request, one after another: its place among them is a stage's number."""

_LONGEST_ID = 128


class Trace:
    """What is learned of one request on its way; the log line and the counters are made of it."""

    # PERF: what most requests leave as it is is the class's: 0.4 us less than slots that are all filled.
    protocol = ""
    operation = ""
    service = ""
    """Set once resolved, so that made-up names never become labels."""
    meant = ""
    """The only service that the call can mean, whether or not it may use it."""
    version = 0
    variant: Variant = ""
    """"stable" or "canary", where the service has both."""
    key = ""
    """The id of its key, where that has one."""
    failed = False
    """Whether it went wrong by no fault of the caller."""
    status = CLIENT_GONE
    seconds = 0.0
    """From `started` to the end; set when the request is counted."""
    bytes_in = 0
    """Of the body, as are those out."""
    bytes_out = 0
    waited = 0.0
    """Of the run: seconds until the batch began that the request is in."""
    alone = False
    """Whether its client has been the only one for a while."""
    timed = False
    """Whether the caller wants to know how long the stages took."""
    span: object = None
    """Of whoever records spans, if anybody does."""

    def __init__(self, request_id: str, peer: str = "", method: str = "", path: str = "") -> None:
        self.started = perf_counter()
        self.id = request_id
        self.peer = peer
        self.method = method
        self.path = path
        self.marks: list[tuple[int, float]] = []
        """The stages that are over, and when they were, as `started`."""

    def mark(self, stage: int) -> None:
        """That stage is over."""
        # PERF: 0.1 us.
        self.marks.append((stage, perf_counter()))

    def elapsed(self) -> float:
        """Seconds since the start."""
        return perf_counter() - self.started

    def stages(self) -> Iterator[tuple[int, float, float]]:
        """Each stage with its start and its end; a wait for a batch is a stage of its own."""
        start = self.started
        for stage, end in self.marks:
            if stage == RUN and self.waited > 0:
                begun = min(start + self.waited, end)
                yield BATCH, start, begun
                start = begun
            yield stage, start, end
            start = end

    def arrived(self) -> float:
        """When the request came, on the monotonic clock."""
        return monotonic() - (perf_counter() - self.started)


current: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The request that this task answers."""


def given_id(head: Call) -> str | None:
    """The id that the call brings in X-Request-Id, if it is one that a log may hold."""
    given = head.header(b"x-request-id")
    if given is None or len(given) > _LONGEST_ID or not given.isascii() or not given.isprintable() or not given:
        return None
    return given


class RequestIds:
    """Ids for requests that bring none: a random prefix a process, then a counter."""

    # PERF: 0.1 us; uuid4 takes 1.5 us.
    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._next = itertools.count(1)

    def __call__(self) -> str:
        return f"{self._prefix}-{next(self._next):x}"
