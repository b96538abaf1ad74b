"""Which operation a path means: the adapters' route tables as one, and the prefixes that name a service."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway.config import GatewayConfig
from gateway.errors import MethodNotAllowed, RouteNotFound
from gateway.interfaces import Adapter, Infer, Operation, Status
from gateway.types import Call, Reply

PROBES = ("/healthz", "/readyz")
PAGES = (*PROBES, "/metrics", "/statusz")
"""The gateway's own, beside the protocols."""


def pages_of(gateway: GatewayConfig) -> tuple[str, ...]:
    """Those on the services' port: probes always, what only operators need where nothing else has it."""
    shown = gateway.operator_pages
    return PAGES if shown == "always" or (shown == "auto" and not gateway.data_dir) else PROBES


_PREFIX = re.compile(r"/(?:services/(?P<service>[^/]+)|seldon/(?:[^/]+/(?!api/v[01]\.))?(?P<seldon>[^/]+))(?=/)")
_FIELD = re.compile(r"\\\{(\w+)\\\}")
_CACHED = 4096


class Route(Struct, frozen=True):
    """A path understood."""

    protocol: str
    adapter: Adapter
    operation: Operation
    name: str
    """The operation's name in metrics and logs, e.g. "predict"."""
    params: Mapping[str, str]
    path: str
    """The raw path without its service prefix."""
    service: str | None
    """The service that a prefix names."""

    def call(self, head: Call, body: bytes, id: str) -> Call:
        """What the adapter sees of the call with that head and body."""
        return Call(
            head.method, self.path, self.params, head.query, head.headers, body, id,
            head.deadline, head.fields, head.learned,
        )  # fmt: skip


class _Entry(Struct, frozen=True):
    protocol: str
    adapter: Adapter
    operation: Operation
    pattern: re.Pattern[str]
    name: str
    literal: int
    """Characters of the path that are not captures: the more, the more specific."""


class PathTable:
    """Every operation of every adapter, found by method and raw path."""

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self._adapters = dict(adapters)
        self._entries = [
            _entry(protocol, adapter, operation)
            for protocol, adapter in adapters.items()
            for operation in adapter.routes()
        ]
        # PERF: a dict hit instead of a regex per operation; only matches are kept, and never more than _CACHED.
        self._found: dict[tuple[str, str], Route] = {}

    def find(self, call: Call) -> Route:
        """The operation for a call's method and raw path; the longest pattern wins, then the adapters' order.

        Raises RouteNotFound, or MethodNotAllowed where only the method is wrong.
        """
        key = (call.method, call.raw_path)
        route = self._found.get(key)
        if route is None:
            route = self._match(call)
            if len(self._found) >= _CACHED:
                self._found.clear()
            self._found[key] = route
        return route

    def has(self, call: Call) -> bool:
        """Whether the call's method and raw path are an operation's."""
        try:
            self.find(call)
        except (RouteNotFound, MethodNotAllowed):
            return False
        return True

    def _match(self, call: Call) -> Route:
        service, path = split_prefix(call.raw_path)
        best: tuple[_Entry, re.Match[str]] | None = None
        others: set[str] = set()
        for entry in self._entries:
            match = entry.pattern.fullmatch(path)
            if match is None:
                continue
            if entry.operation.method != call.method:
                others.add(entry.operation.method)
            elif best is None or entry.literal > best[0].literal:
                best = (entry, match)
        if best is None:
            text = f"{call.method} {path[:256]}"
            if others - {"OPTIONS"}:  # NOTE: a preflight is answered below a prefix, whether or not there is a path
                raise MethodNotAllowed(f"{text}: the method must be {' or '.join(sorted(others))}", sorted(others))
            raise RouteNotFound(f"{text}: no such path")
        entry, match = best
        params = {name: value for name, value in match.groupdict().items() if value is not None}
        return Route(entry.protocol, entry.adapter, entry.operation, entry.name, params, path, service)

    def claimant(self, call: Call) -> tuple[str, Adapter] | None:
        """Whose dialect a call speaks that no operation matches, if anybody's."""
        _, path = split_prefix(call.raw_path)
        bare = Call(call.method, path, query=call.query, headers=call.headers)
        sure, protocol = 0, ""
        for name, adapter in self._adapters.items():
            claim = adapter.claims(bare)
            if claim > sure:
                sure, protocol = claim, name
        return (protocol, self._adapters[protocol]) if sure else None

    def speaking(self, route: Route, call: Call) -> Route:
        """The route, in the dialect of a protocol that claims the call more surely than the one that answers it.

        Two protocols may tell of a model on one path; who asks for one that is not there is told in its own terms.
        """
        if isinstance(route.operation, Status):
            claimant = self.claimant(call)
            if claimant is not None and claimant[1].claims(call) > route.adapter.claims(call):
                return replace(route, protocol=claimant[0], adapter=claimant[1])
        return route

    def examples(self) -> str:
        """A path of each protocol, for those who have hit none: `tfserving: POST /v1/models/{model}:predict`."""
        first: dict[str, str] = {}
        for entry in self._entries:
            if isinstance(entry.operation, Infer):
                path = re.sub(r"\[.*?\]", "", entry.operation.path)
                first.setdefault(entry.protocol, f"{entry.protocol}: {entry.operation.method} {path}")
        return "; ".join(first.values())

    def rows(self) -> list[tuple[str, str, str, str]]:
        """(method, path, protocol, operation) of everything that is served."""
        return [(e.operation.method, e.operation.path, e.protocol, e.name) for e in self._entries]


def unclaimed(examples: str) -> Reply:
    """The answer to a call that speaks no protocol, so that nobody's dialect is meant."""
    return Reply(msgspec.json.encode({"error": f"not found: no protocol has this path; there are {examples}"}), 404)


def split_prefix(raw_path: str) -> tuple[str | None, str]:
    """`/services/NAME/rest` and `/seldon/NAMESPACE/NAME/rest` as (NAME, /rest); any other path as (None, path).

    SPEC: Seldon's clients leave the namespace out where they know none: `/seldon/NAME/api/v1.0/predictions`.
    """
    match = _PREFIX.match(raw_path)
    if match is None:
        return None, raw_path
    return unquote(match["service"] or match["seldon"]), raw_path[match.end() :]


def _entry(protocol: str, adapter: Adapter, operation: Operation) -> _Entry:
    pattern = operation.pattern
    if pattern is None:
        pattern = re.compile(_FIELD.sub(r"(?P<\1>[^/:]+)", re.escape(operation.path)))
    _, _, verb = operation.path.rpartition(":")
    name = verb if verb.isidentifier() else type(operation).__name__.lower()
    return _Entry(protocol, adapter, operation, pattern, name, len(re.sub(r"\{\w+\}", "", operation.path)))
