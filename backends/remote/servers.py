"""Which of several servers is asked next: the least busy of those that answer; the others get a rest, then a trial."""

import time
from collections.abc import Callable, Collection, Sequence

_MOST_DOUBLINGS = 4


class Server:
    """One of them, and how it has been doing."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.running = 0
        """Calls that it is answering."""
        self.failures = 0
        """In a row."""
        self.ejections = 0
        """In a row; 0 for a server in good standing."""
        self.back_at = 0.0
        self.wants_uuids = False
        """It refuses a request's id that is no UUID."""


class Servers:
    """All that have the model. They are never all refused: the one that is back first is asked then."""

    def __init__(
        self,
        urls: Sequence[str],
        eject_after: int,
        eject_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.all = tuple(Server(url) for url in urls)
        self._eject_after, self._eject_seconds, self._clock = eject_after, eject_seconds, clock
        self._turn = 0

    @property
    def down(self) -> int:
        """How many have been put aside and have not answered since."""
        return sum(server.ejections > 0 for server in self.all)

    def pick(self, tried: Collection[Server] = ()) -> Server:
        """The next one to ask, if possible one that this call has not tried."""
        self._turn += 1
        order = [self.all[(self._turn + place) % len(self.all)] for place in range(len(self.all))]
        usable = [server for server in order if self._is_usable(server)]
        if not usable:
            fresh = [server for server in order if server not in tried]
            return min(fresh or order, key=lambda server: server.back_at)
        fresh = [server for server in usable if server not in tried]
        # A server on trial goes first, so that it can come back though others are idle.
        return min(fresh or usable, key=lambda server: (not server.ejections, server.running))

    def others(self, tried: Collection[Server]) -> bool:
        """Whether there is one in good standing that has not been tried."""
        return any(self._is_usable(server) and server not in tried for server in self.all)

    def answered(self, server: Server) -> None:
        """It works."""
        server.failures = server.ejections = 0

    def failed(self, server: Server) -> None:
        """It did not answer, or said that it cannot."""
        server.failures += 1
        if server.ejections or server.failures >= self._eject_after:
            self.eject(server)

    def eject(self, server: Server) -> None:
        """Leave it alone for a while."""
        rest = self._eject_seconds * 2 ** min(server.ejections, _MOST_DOUBLINGS)
        server.ejections += 1
        server.back_at = self._clock() + rest

    def _is_usable(self, server: Server) -> bool:
        """One that is back from its rest gets one call at a time until it has answered."""
        return not server.ejections or (server.back_at <= self._clock() and not server.running)
