"""Asking the requests of a payload log again."""

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config import ConfigError
from gateway.payloadrecord import Content, PayloadRecord
from gateway.replay import Answer, Report, compare, replay, told


def line(text: str = '{"y": 1}', **changes: Any) -> str:
    """A record that asks for `/y` and was answered with 200."""
    record = {
        "time": "2026-01-01T00:00:00Z", "id": "id-1", "method": "POST", "path": "/y", "status": 200, "ms": 5.0,
        "request": {"text": "[1]"}, "answer": {"text": text}, "headers": {"content-type": "application/json"},
    }  # fmt: skip
    return json.dumps(record | changes) + "\n"


def ask(paths: list[Path], answer: httpx.MockTransport, **options: Any) -> Report:
    return asyncio.run(replay(paths, "http://gateway", transport=answer, **options))


def put(folder: Path, *lines: str) -> Path:
    file = folder / "log.jsonl"
    file.write_text("".join(lines))
    return file


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ('{"y": 1}', '{"y": 1.000001}', ""),
        ('{"y": 1}', '{ "y" : 1.0 }', ""),
        ('{"y": [1, 2]}', '{"y": [1, 2.5]}', "y[1]: 2.5 instead of 2"),
        ('{"y": [1, 2]}', '{"y": [1]}', "y: 1 items instead of 2"),
        ('{"y": 1}', '{"z": 1}', "answer: other fields: y, z"),
        ('{"id": "a", "y": {"created": 1}}', '{"id": "b", "y": {"created": 2}}', ""),
        ('{"y": true}', '{"y": 1}', "y: '1' instead of 'True'"),
        ('{"y": "a"}', '{"y": "b"}', "y: 'b' instead of 'a'"),
        ('{"y": 1}', '{"y": null}', "y: 'None' instead of '1'"),
        ("a,b", "a,b", ""),
        ("a,b", "a,bc", "4 other bytes instead of 3"),
        ("1", "2", "answer: 2 instead of 1"),
    ],
)
def test_compare(then: str, now: str, expected: str) -> None:
    """Numbers may lie apart by the tolerance, and what is new each time does not count."""
    assert compare(Content(text=then), now.encode(), 1e-5) == expected


def test_what_is_asked(tmp_path: Path) -> None:
    """The request is the one of then, with the headers of then and those given."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"y": 1})

    log = put(tmp_path, line(query="json=1"))
    report = ask([log], httpx.MockTransport(answer), headers={"authorization": "Bearer k"})
    assert report.good
    (request,) = seen
    assert (request.method, str(request.url), request.content) == ("POST", "http://gateway/y?json=1", b"[1]")
    assert (request.headers["content-type"], request.headers["authorization"]) == ("application/json", "Bearer k")


def test_the_report(tmp_path: Path) -> None:
    """Statuses then and now, differences, and what was skipped are all told, and make it no good one."""
    log = put(
        tmp_path,
        line(),
        line('{"y": 2}', id="id-2"),
        line(path="/away", id="id-3"),
        line(path="/gone", id="id-4"),
        line(id="id-5", answer={"cut": True}),
        line(request={"cut": True}),
        line(method="gRPC"),
        "nonsense\n",
    )

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/gone":
            raise httpx.ConnectError("refused")
        return httpx.Response(404 if request.url.path == "/away" else 200, json={"y": 1})

    report = ask([log], httpx.MockTransport(answer))
    assert not report.good
    assert (report.sent, report.same, report.differing, report.not_compared) == (5, 1, 3, 1)
    assert report.skipped == {"body not kept whole": 1, "no HTTP request": 1, "not a record": 1}
    assert report.statuses == {(200, 200): 3, (200, 404): 1, (200, -1): 1}
    text = "\n".join(told(report, 1e-5, 1.0))
    for part in ("id-2 POST /y: y: 1 instead of 2", "status 404 instead of 200", "no answer: ConnectError", "then p50"):
        assert part in text


def test_requests_at_a_time(tmp_path: Path) -> None:
    """Each record is asked once, however many are asked at a time."""
    log = put(tmp_path, *(line(path=f"/{number}") for number in range(50)))
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        return httpx.Response(200, json={"y": 1})

    report = ask([log], httpx.MockTransport(answer), connections=4)
    assert sorted(seen) == sorted(f"/{number}" for number in range(50))
    assert report.same == 50


def test_a_folder_is_its_files(tmp_path: Path) -> None:
    """A folder stands for its files, in the order in which they were written."""
    (tmp_path / "b.jsonl").write_text(line(path="/2"))
    (tmp_path / "a.jsonl").write_text(line(path="/1"))
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        return httpx.Response(200, json={"y": 1})

    ask([tmp_path], httpx.MockTransport(answer))
    assert seen == ["/1", "/2"]


@pytest.mark.parametrize(("make", "said"), [(False, "there is no such file"), (True, "holds no .jsonl files")])
def test_nothing_to_read(tmp_path: Path, make: bool, said: str) -> None:
    """A file that is not there, or an empty folder, is told of."""
    path = tmp_path / "log"
    if make:
        path.mkdir()
    with pytest.raises(ConfigError, match=said):
        ask([path], httpx.MockTransport(lambda request: httpx.Response(200)))


def chat(*pieces: str, finish: str = "stop") -> str:
    """A streamed chat, in so many pieces."""
    deltas = [{"id": f"c{len(pieces)}", "model": "m", "choices": [{"delta": {"content": piece}}]} for piece in pieces]
    last = {"id": f"c{len(pieces)}", "model": "m", "choices": [{"delta": {}, "finish_reason": finish}]}
    return "".join(f"data: {json.dumps(one)}\n\n" for one in (*deltas, last)) + "data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (chat("Hel", "lo"), ""),
        (chat("H", "el", "lo"), ""),
        (": ping\n\n" + chat("Hello"), ""),
        (chat("Hell"), "choices[].delta.content: 'Hell' instead of 'Hello'"),
        (chat("Hello", finish="length"), "choices[].finish_reason[0]: 'length' instead of 'stop'"),
    ],
)
def test_streams_are_compared_by_what_they_say(now: str, expected: str) -> None:
    """However they are cut into parts."""
    assert compare(Content(chat("Hel", "lo")), now.encode(), 1e-5, "text/event-stream; charset=utf-8") == expected


def frame(payload: bytes) -> bytes:
    """One of SageMaker's frames, with a header of three bytes."""
    return (16 + 3 + len(payload)).to_bytes(4) + (3).to_bytes(4) + b"crc1" + b"abc" + payload + b"crc2"


def test_frames_are_compared_by_their_payloads() -> None:
    """As one text, wherever it is cut."""
    frames = "application/vnd.amazon.eventstream"
    then = Content(base64=base64.b64encode(frame(b'{"y": [1.0, ') + frame(b"2.5]}")).decode())
    assert compare(then, frame(b'{"y": [1.0, 2.5000001]}'), 1e-5, frames) == ""
    assert compare(then, frame(b'{"y": [1.0, 3.5]}'), 1e-5, frames) == "y[][1]: 3.5 instead of 2.5"


def test_a_stream_that_was_left_is_not_compared(tmp_path: Path) -> None:
    """It says less than the one of now."""
    log = put(tmp_path, line(chat("Hel"), ended="left", media_type="text/event-stream"))
    report = ask([log], httpx.MockTransport(lambda request: httpx.Response(200, text=chat("Hello"))))
    assert (report.sent, report.not_compared, report.differing) == (1, 1, 0)


def test_calls_over_grpc_are_asked_where_there_is_a_way(tmp_path: Path) -> None:
    """Else they are left out, and it is said why."""
    log = put(tmp_path, line(method="GRPC", status=5, path="/x.Y/Z", answer={}))
    nobody = httpx.MockTransport(lambda request: httpx.Response(500))
    assert ask([log], nobody).skipped == {"over gRPC, and no --grpc is given": 1}

    async def rpc(record: PayloadRecord, headers: Mapping[str, str] | None) -> Answer:
        return Answer(5 if record.path == "/x.Y/Z" else 2, b"", "not found")

    report = ask([log], nobody, rpc=rpc)
    assert (report.same, report.statuses) == (1, {(5, 5): 1})
