"""A session on the device that was asked for, warmed up; on the CPU where CUDA fails and may be given up."""

import numpy as np
from msgspec import Struct

from backends._failures import of_device, out_of_memory, shown
from backends._graph import MODEL_FILE, Graph
from backends._pace import NEVER, Pace, measure
from backends._plan import smallest
from backends._session import Config, Model, Provider, Session, Sessions, log
from gateway.errors import LoadFailed, OutOfMemory
from gateway.interfaces import BackendStatus, ModelSource

MAX_WARM_ELEMENTS = 1 << 26
"""A model whose smallest input is larger is not warmed up."""


class Opened(Struct, frozen=True):
    """A session, and what was learned while opening it."""

    session: Session
    pace: Pace
    proven: bool
    """The warm-up run succeeded."""
    status: BackendStatus


class Opener:
    """Opens one model's sessions: the first, and the one that takes over from CUDA."""

    def __init__(self, source: ModelSource, graph: Graph, config: Config, sessions: Sessions) -> None:
        directory = source.directory.absolute()
        self.hidden = tuple({source.directory, source.root, directory, directory.resolve(), source.root.resolve()})
        self._source = source
        self._graph = graph
        self._config = config
        self._sessions = sessions
        self._model = Model(directory / MODEL_FILE, graph.rewritten, graph.sized_by_values)

    def open(self) -> Opened:
        """A session as `source.device` has it. Raises LoadFailed or OutOfMemory."""
        device = self._source.device
        if device == "cpu":
            return self._opened("CPU")
        if problem := self._sessions.cuda_problem():
            if device == "cuda":
                raise LoadFailed(f"device is cuda, but {problem}")
            return self._opened("CPU", note=f"CUDA is not used: {problem}")
        try:
            return self._opened("CUDA")
        except (LoadFailed, OutOfMemory) as error:
            if device == "cuda":
                raise
            log.warning("%s: CUDA failed at load, the CPU takes over: %s", self._label(), error.__cause__ or error)
            return self._opened("CPU", note=f"CUDA failed at load: {error}", fallbacks=1)

    def open_cpu(self) -> Session:
        """A session that takes over from CUDA. Raises LoadFailed or OutOfMemory."""
        return self._session("CPU")

    def _opened(self, provider: Provider, note: str = "", fallbacks: int = 0) -> Opened:
        session = self._session(provider)
        seconds, elements = self._warm_up(session, provider)
        status = BackendStatus(provider, note, fallbacks)
        pace = Pace(seconds, elements)
        if self._graph.sized_by_values:
            pace.inline_elements = NEVER  # one number may ask for gigabytes
        return Opened(session, pace, seconds is not None, status)

    def _session(self, provider: Provider) -> Session:
        try:
            return self._sessions.open(self._model, self._config, provider)
        except Exception as error:
            log.info("%s: no session: %s", self._label(), error)
            raise self._failure(error) from error

    def _warm_up(self, session: Session, provider: Provider) -> tuple[float | None, int]:
        """Seconds and elements of the smallest run.

        A model may have good reasons to refuse zeros, so that is no failure; a device that fails is one.
        """
        edges = self._graph.inputs.values()
        elements = sum(_elements(edge.spec.shape) for edge in edges if not edge.optional)
        if elements > MAX_WARM_ELEMENTS:
            return None, elements
        fetch = [edge.session_name for edge in self._graph.outputs.values()]
        feed = smallest(edges)
        try:
            return measure(lambda: session.run(fetch, feed)), elements
        except Exception as error:
            if provider == "CUDA" and of_device(error):
                raise self._failure(error) from error
            log.info("%s: the warm-up run failed, which may be the zeros' fault: %s", self._label(), error)
            return None, elements

    def _failure(self, error: Exception) -> LoadFailed | OutOfMemory:
        text = f"{MODEL_FILE}: {shown(error, self.hidden)}"
        return OutOfMemory(text) if out_of_memory(error) else LoadFailed(text)

    def _label(self) -> str:
        return f"{self._source.name} version {self._source.version}"


def _elements(shape: tuple[int | None, ...] | None) -> int:
    return int(np.prod([1 if size is None else size for size in shape or ()], dtype=np.float64))
