"""Requests of a payload log, asked again: what a gateway answers now, how fast, and where it differs from then."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from gateway.config import ConfigError
from gateway.interfaces import GRPC, WEBSOCKET
from gateway.payloadlog import SUFFIX
from gateway.payloadrecord import Content, PayloadRecord
from gateway.replaystreams import is_streamed, said

OTHER_EACH_TIME = frozenset({"created", "id", "puid", "system_fingerprint"})
"""Fields that are never the same twice."""
SHOWN = 10
_NO_ANSWER = -1


class NoAnswer(Exception):
    """What was asked has not been answered."""


class Answer(Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes
    told: str
    """The body, or what else tells why, for people."""


Rpc = Callable[[PayloadRecord, Mapping[str, str] | None], Awaitable[Answer]]
"""Asks over gRPC, with these headers besides. Raises NoAnswer."""


class Report(Struct):
    """What came of it."""

    sent: int = 0
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    """Lines that were not asked again, by reason."""
    statuses: Counter[tuple[int, int]] = msgspec.field(default_factory=Counter)
    """The status then and now; -1 for no answer."""
    seconds: list[float] = []
    then_seconds: list[float] = []
    same: int = 0
    not_compared: int = 0
    """Answered alike, but the answer of then is not in the log as a whole."""
    different: list[str] = []
    """Where the answers differ; the first few."""
    differing: int = 0

    @property
    def good(self) -> bool:
        """Whether everything was answered as it was then."""
        return bool(self.sent) and not self.differing and all(then == now for then, now in self.statuses)


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files, and those of folders in the order of their names. Raises ConfigError where there is none."""
    found = []
    for path in paths:
        files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not files:
            raise ConfigError(f"{path}: holds no {SUFFIX} files")
        if not files[0].is_file():
            raise ConfigError(f"{path}: there is no such file")
        found += files
    return found


def records(files: Sequence[Path]) -> Iterator[PayloadRecord | str]:
    """The records of the files; or why a line is none."""
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                try:
                    yield msgspec.json.decode(line, type=PayloadRecord)
                except msgspec.MsgspecError:
                    yield "not a record"


async def replay(
    paths: Sequence[Path],
    url: str,
    *,
    connections: int = 1,
    tolerance: float = 1e-5,
    headers: Mapping[str, str] | None = None,
    progress: Callable[[Report], None] = lambda report: None,
    transport: httpx.AsyncBaseTransport | None = None,
    rpc: Rpc | None = None,
) -> Report:
    """Ask everything again, so many requests at a time; over gRPC only if there is a way. Raises ConfigError."""
    report = Report()
    # One iterator for all: whoever is free takes the next line.
    lines = records(files_of(paths))
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(
        base_url=url, timeout=120, limits=limits, headers=dict(headers or {}), transport=transport, trust_env=False
    ) as client:

        async def work() -> None:
            for record in lines:
                if isinstance(record, str) or (reason := _unfit(record, rpc is not None)):
                    report.skipped[record if isinstance(record, str) else reason] += 1
                else:
                    ask = _over_http(client, record) if record.method != GRPC or rpc is None else rpc(record, headers)
                    await _again(ask, record, tolerance, report)
                progress(report)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(work())
    return report


def _unfit(record: PayloadRecord, rpc: bool) -> str:
    """Why a request cannot be asked again."""
    if record.request.cut:
        return "body not kept whole"
    if record.method == GRPC:
        return "" if rpc else "over gRPC, and no --grpc is given"
    if record.method == WEBSOCKET:
        return "over a websocket"
    return "no HTTP request" if record.method not in ("GET", "POST", "PUT") else ""


async def _over_http(client: httpx.AsyncClient, record: PayloadRecord) -> Answer:
    target = f"{record.path}?{record.query}" if record.query else record.path
    try:
        reply = await client.request(
            record.method, target, content=record.request.bytes(), headers={"content-type": "", **record.headers}
        )
    except httpx.HTTPError as error:
        raise NoAnswer(type(error).__name__) from None
    return Answer(reply.status_code, reply.content, reply.text[:200])


async def _again(ask: Awaitable[Answer], record: PayloadRecord, tolerance: float, report: Report) -> None:
    started = perf_counter()
    report.sent += 1
    try:
        answer = await ask
    except NoAnswer as error:
        report.statuses[record.status, _NO_ANSWER] += 1
        _differ(report, record, f"no answer: {error}")
        return
    report.seconds.append(perf_counter() - started)
    report.then_seconds.append(record.ms / 1000)
    report.statuses[record.status, answer.status] += 1
    if answer.status != record.status:
        _differ(report, record, f"status {answer.status} instead of {record.status}: {answer.told}")
    elif record.answer.cut or record.ended != "whole":
        report.not_compared += 1
    elif difference := compare(record.answer, answer.body, tolerance, record.media_type):
        _differ(report, record, difference)
    else:
        report.same += 1


def _differ(report: Report, record: PayloadRecord, what: str) -> None:
    report.differing += 1
    if len(report.different) < SHOWN:
        report.different.append(f"{record.id} {record.method} {record.path}: {what}")


def compare(then: Content, now: bytes, tolerance: float, media_type: str = "") -> str:
    """The first difference of two answers; empty for none. In JSON, numbers may be apart by the tolerance."""
    before = then.bytes()
    if before == now:
        return ""
    if is_streamed(media_type):
        return _difference(_lasting(before, media_type), _lasting(now, media_type), tolerance, "")
    try:
        one, two = msgspec.json.decode(before), msgspec.json.decode(now)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return f"{len(now)} other bytes instead of {len(before)}"
    return _difference(one, two, tolerance, "")


def _lasting(body: bytes, media_type: str) -> dict[str, Any]:
    """What the parts say, but for what is another each time."""
    parts = said(body, media_type)
    return {path: value for path, value in parts.items() if path.rpartition(".")[2] not in OTHER_EACH_TIME}


def _difference(then: Any, now: Any, tolerance: float, where: str) -> str:
    match then, now:
        case dict(), dict():
            if then.keys() != now.keys():
                return f"{where or 'answer'}: other fields: {', '.join(sorted(then.keys() ^ now.keys()))}"
            each = [(f"{where}.{key}".lstrip("."), then[key], now[key]) for key in then if key not in OTHER_EACH_TIME]
        case list(), list():
            if len(then) != len(now):
                return f"{where or 'answer'}: {len(now)} items instead of {len(then)}"
            each = [(f"{where}[{place}]", one, two) for place, (one, two) in enumerate(zip(then, now, strict=True))]
        case (int() | float(), int() | float()) if not isinstance(then, bool) and not isinstance(now, bool):
            near = math.isclose(then, now, rel_tol=tolerance, abs_tol=tolerance)
            return "" if near else f"{where or 'answer'}: {now!r} instead of {then!r}"
        case _:
            same = type(then) is type(now) and then == now
            return "" if same else f"{where or 'answer'}: {str(now)[:80]!r} instead of {str(then)[:80]!r}"
    return next((found for place, one, two in each if (found := _difference(one, two, tolerance, place))), "")


def told(report: Report, tolerance: float, seconds: float) -> Iterator[str]:
    """The report for people."""
    skipped = "".join(f", {count} skipped: {reason}" for reason, count in report.skipped.items())
    yield f"{report.sent} requests asked again in {seconds:.1f} s{skipped}"
    for (then, now), count in sorted(report.statuses.items()):
        yield f"  status   {then} -> {'no answer' if now == _NO_ANSWER else now}: {count}"
    yield f"  latency  now  {_percentiles(report.seconds)}"
    yield f"           then {_percentiles(report.then_seconds)}"
    yield (
        f"  answers  {report.same} same, {report.differing} different (tolerance {tolerance:g}), "
        f"{report.not_compared} not compared"
    )
    yield from (f"    {one}" for one in report.different)
    if report.differing > len(report.different):
        yield f"    and {report.differing - len(report.different)} more"


def _percentiles(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    return ", ".join(f"{name} {ordered[math.ceil(share * len(ordered)) - 1] * 1e3:.2f} ms" for name, share in shares)
