"""The payload log: what it keeps, what it leaves out, and how much of both."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.config import ConfigError, PayloadLogConfig
from gateway.payloadlog import PENDING_BYTES, PayloadLog
from gateway.payloadrecord import content, kept_headers, kept_query
from gateway.streaming import closing
from gateway.trace import Trace
from gateway.types import Call, Reply

BODY = b'{"instances": [1]}'


def ended(service: str = "digits") -> Trace:
    """A request that is answered."""
    trace = Trace("id-1", "127.0.0.1", "POST", "/v1/models/digits:predict")
    trace.protocol, trace.service, trace.operation, trace.version = "tfserving", service, "predict", 3
    return trace


HEAD = Call("POST", "/v1/models/digits:predict", headers=[(b"authorization", b"Bearer k"), (b"accept", b"*/*")])
REPLY = Reply(b'{"predictions": [2]}', 200)


def written(log: PayloadLog) -> None:
    """Write what gathered."""

    async def run() -> None:
        running = asyncio.create_task(log.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]


def log_of(tmp_path: Path, chances: Sequence[float] = (), **config: Any) -> PayloadLog:
    """A log in a folder of its own, with a chance for each request."""
    left = list(chances)
    log = PayloadLog(PayloadLogConfig("log", **config), tmp_path, lambda: left.pop(0) if left else 0.0)
    log.prepare()
    return log


def test_a_record(tmp_path: Path) -> None:
    """A line has what is needed to ask again and to compare, and no more of the head."""
    log = log_of(tmp_path)
    log.note(HEAD, BODY, REPLY, ended())
    written(log)
    (record,) = kept(tmp_path / "log")
    assert record.pop("time").endswith("Z")
    assert record.pop("ms") >= 0
    assert record == {
        "id": "id-1",
        "method": "POST",
        "path": "/v1/models/digits:predict",
        "status": 200,
        "request": {"text": BODY.decode()},
        "answer": {"text": '{"predictions": [2]}'},
        "headers": {"accept": "*/*"},
        "media_type": "application/json",
        "protocol": "tfserving",
        "service": "digits",
        "operation": "predict",
        "version": 3,
    }
    assert (log.written, log.dropped) == (1, 0)


def test_the_share_and_the_services(tmp_path: Path) -> None:
    """Only requests of the services, and of them the share; calls that reached no service are never kept."""
    log = log_of(tmp_path, [0.1, 0.9, 0.4], sample=0.5, services=("digits",))
    for service in ("digits", "other", "digits", "", "digits"):
        log.note(HEAD, BODY, REPLY, ended(service))
    written(log)
    assert [one["service"] for one in kept(tmp_path / "log")] == ["digits", "digits"]


EVENTS = "text/event-stream"


class Broken(Exception):
    """What ends a stream early."""


async def parts(*chunks: bytes, breaks: bool = False) -> AsyncIterator[bytes]:
    """An answer in parts."""
    for chunk in chunks:
        yield chunk
    if breaks:
        raise Broken


def streamed(
    log: PayloadLog, *chunks: bytes, most: int = 100, breaks: bool = False, method: str = "POST"
) -> list[bytes]:
    """The chunks that a client of whom the log takes note gets, who leaves after so many."""

    async def sent() -> list[bytes]:
        reply = log.note(replace(HEAD, method=method), BODY, Reply(parts(*chunks, breaks=breaks), 200, EVENTS), ended())
        assert not isinstance(reply.body, bytes)
        got = []
        async with closing(reply.body) as body:
            with contextlib.suppress(Broken):
                async for chunk in body:
                    got.append(chunk)
                    if len(got) == most:
                        break
        return got

    got = asyncio.run(sent())
    written(log)
    return got


@pytest.mark.parametrize(
    ("how", "answer", "ending"),
    [
        ({}, {"text": "data: 1\n\ndata: 2\n\n"}, "whole"),
        ({"most": 1}, {"text": "data: 1\n\n"}, "left"),
        ({"breaks": True}, {"text": "data: 1\n\ndata: 2\n\n"}, "broken"),
    ],
)
def test_a_stream_is_kept_at_its_end(tmp_path: Path, how: dict[str, Any], answer: dict[str, Any], ending: str) -> None:
    """As far as it came, with how it ended; the client gets every chunk as it was."""
    log = log_of(tmp_path)
    got = streamed(log, b"data: 1\n\n", b"data: 2\n\n", **how)
    assert got == [b"data: 1\n\n", b"data: 2\n\n"][: how.get("most")]
    (record,) = kept(tmp_path / "log")
    assert record["answer"] == answer
    assert record.get("ended", "whole") == ending


def test_a_long_stream_is_cut(tmp_path: Path) -> None:
    """No more of it is kept than of any answer."""
    log = log_of(tmp_path, max_bytes=12)
    assert len(streamed(log, *[b"data: %d\n\n" % number for number in range(9)])) == 9
    assert kept(tmp_path / "log")[0]["answer"] == {"text": "data: 0\n\ndat", "cut": True}


def test_the_texts_of_a_websocket_are_lines(tmp_path: Path) -> None:
    """Each of them is one frame, and has no end of its own."""
    log = log_of(tmp_path)
    streamed(log, b'{"step":1}', b'{"step":2}', method="WEBSOCKET")
    (record,) = kept(tmp_path / "log")
    assert (record["method"], record["answer"]) == ("WEBSOCKET", {"text": '{"step":1}\n{"step":2}'})


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (
            [b'event: x\ndata: {"a": 1, "secret": "s"}\n\n', b": ping\n\ndata: [DONE]\n\n"],
            {"text": 'event: x\ndata: {"a":1,"secret":"[redacted]"}\n\n: ping\n\ndata: [DONE]\n\n'},
        ),
        ([b'{"secret": [1, 2]}\n'], {"text": '{"secret":"[redacted]"}\n'}),
        ([b"data: secret words\n\n"], {"cut": True}),
        ([b"\xff\n"], {"cut": True}),
        (
            [b'data: {"a": 1}\n\ndata: {"secret": "12345678901234567890"}\n\n'],
            {"text": 'data: {"a":1}\n', "cut": True},
        ),
    ],
)
def test_the_values_of_a_stream_are_redacted(tmp_path: Path, chunks: list[bytes], expected: dict[str, Any]) -> None:
    """Line by line; what nobody can read is not kept, nor is half a line."""
    log = log_of(tmp_path, redact=("secret",), max_bytes=80 if len(chunks) > 1 else 40)
    streamed(log, *chunks)
    assert kept(tmp_path / "log")[0]["answer"] == expected


def test_streams_that_would_be_too_much_are_not_kept(tmp_path: Path) -> None:
    """Each that is on its way may still take all that may be kept of it."""
    log = log_of(tmp_path, max_bytes=PENDING_BYTES // 2)
    chunks = [parts(b"x") for _ in range(3)]
    replies = [log.note(HEAD, BODY, Reply(one, 200, EVENTS), ended()) for one in chunks]
    assert [reply.body is chunk for reply, chunk in zip(replies, chunks, strict=True)] == [False, False, True]
    assert log.dropped == 1


@pytest.mark.parametrize(("headers", "status"), [((), 0), ((("grpc-status", "5"),), 5)])
def test_a_call_over_grpc_has_its_status(tmp_path: Path, headers: tuple[tuple[str, str], ...], status: int) -> None:
    """And messages that are no text."""
    log = log_of(tmp_path)
    head = Call("GRPC", "/inference.GRPCInferenceService/ModelInfer")
    log.note(head, b"\xff", Reply(b"\xfe", 404 if headers else 200, headers=headers), ended())
    written(log)
    (record,) = kept(tmp_path / "log")
    assert (record["method"], record["status"]) == ("GRPC", status)
    assert [record[body] for body in ("request", "answer")] == [{"base64": "/w=="}, {"base64": "/g=="}]


@pytest.mark.parametrize(
    ("body", "redact", "expected"),
    [
        (b"abc", (), {"text": "abc"}),
        (b"", (), {"text": ""}),
        (b"0123456789abcdef", (), {"text": "0123456789", "cut": True}),
        (b"\xff\x00", (), {"base64": base64.b64encode(b"\xff\x00").decode()}),
        (b'{"a":1}', ("x",), {"text": '{"a":1}'}),
        (b'{"x":1}', ("x",), {"text": '{"x":"[red', "cut": True}),
        (b"x=1", ("x",), {"cut": True}),
        (b"[" * 9, ("x",), {"cut": True}),
        (b'{"x": "0123456789"}', ("x",), {"cut": True}),
        (b"", ("x",), {"text": ""}),
    ],
)
def test_content(body: bytes, redact: tuple[str, ...], expected: dict[str, Any]) -> None:
    """A body is text or Base64, cut where it is long, and not kept where it should be redacted and cannot be."""
    made = content(body, 10, redact)
    assert {name: getattr(made, name) for name in expected} == expected
    if not made.cut:
        assert made.bytes() == body


def test_redaction_reaches_every_depth() -> None:
    """The named fields' values go, wherever they lie and whatever they are."""
    body = {"a": [{"pin": 1, "b": {"pin": [2, {"c": 3}]}}], "pin": None}
    text = content(json.dumps(body).encode(), 1000, ("pin",)).text
    assert json.loads(text or "") == {"a": [{"pin": "[redacted]", "b": {"pin": "[redacted]"}}], "pin": "[redacted]"}


def test_heads_are_kept_by_a_list_of_what_is_needed() -> None:
    """Unknown headers and parameters of the query stay out: one of them may be a key."""
    headers = [(b"x-my-secret", b"k"), (b"content-type", b"text/csv"), (b"cookie", b"k"), (b"x-tensorgate-key", b"k")]
    assert kept_headers(headers) == {"content-type": "text/csv"}
    assert kept_query("X-Amz-Signature=abc&json=%7B%7D&token=k") == "json=%7B%7D"
    assert kept_query("") == ""


def test_files_are_bounded(tmp_path: Path) -> None:
    """A full file is followed by another, and the oldest go when all together are too many bytes."""
    log = log_of(tmp_path, file_bytes=1000, total_bytes=3000)
    for number in range(40):
        trace = ended()
        trace.id = f"id-{number}"
        log.note(HEAD, BODY, REPLY, trace)
    written(log)
    sizes = [file.stat().st_size for file in (tmp_path / "log").iterdir()]
    assert sum(sizes) <= 3000
    assert max(sizes) <= 1000
    assert kept(tmp_path / "log")[-1]["id"] == "id-39"
    assert log.written == 40


def test_only_own_files_go(tmp_path: Path) -> None:
    """Whatever else lies in the folder stays."""
    (tmp_path / "log").mkdir()
    other = tmp_path / "log" / "mine.jsonl"
    other.write_text("x" * 5000)
    log = log_of(tmp_path, file_bytes=300, total_bytes=600)
    for _ in range(10):
        log.note(HEAD, BODY, REPLY, ended())
    written(log)
    assert other.read_text() == "x" * 5000


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    """Bodies that come faster than they are written are dropped and counted, not gathered without end."""
    log = log_of(tmp_path)
    body = bytes(PENDING_BYTES // 3)
    for _ in range(5):
        log.note(HEAD, body, REPLY, ended())
    written(log)
    assert (log.written, log.dropped) == (2, 3)


def test_a_full_disk_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be written is counted, and told once."""
    log = log_of(tmp_path)
    (tmp_path / "log").rmdir()
    for _ in range(2):
        log.note(HEAD, BODY, REPLY, ended())
    written(log)
    assert log.dropped == 2
    assert [one.message for one in caplog.records] == ["the payload log cannot be written: No such file or directory"]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """A folder that cannot be made is an error of the configuration."""
    (tmp_path / "log").write_text("a file")
    with pytest.raises(ConfigError, match=r"payload_log\.dir: .*log cannot be made: File exists"):
        log_of(tmp_path)
