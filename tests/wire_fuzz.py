"""Bad requests for a raw socket, each made from a seed and its number alone."""

import gzip
import json
import random
import re
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Za-z' -]*\r\n")
ANSWERED = 1.0  # seconds of silence after which an exchange is over


class Valid(NamedTuple):
    """A request that a protocol would take."""

    path: str
    content_type: str
    body: bytes
    method: str = "POST"


def _json(path: str, value: object) -> Valid:
    return Valid(path, "application/json", json.dumps(value).encode())


_V2_INPUT = {"name": "x", "shape": [2], "datatype": "FP32"}
_CHAT = {"model": "tinychat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
REQUESTS = (
    _json("/v1/models/half_plus_three:predict", {"instances": [1.0, 2.0]}),
    _json("/v1/models/half_plus_three:predict", {"inputs": {"x": [1.0]}}),
    _json("/v1/models/half_plus_three:classify", {"examples": [{"x": 1.0}]}),
    _json("/v2/models/half_plus_three/infer", {"inputs": [{**_V2_INPUT, "data": [1.0, 2.0]}]}),
    _json("/seldon/ns/iris/api/v1.0/predictions", {"data": {"ndarray": [[5.1, 3.5, 1.4, 0.2]]}}),
    _json("/api/v1.0/predictions", {"data": {"tensor": {"shape": [1, 4], "values": [5.1, 3.5, 1.4, 0.2]}}}),
    Valid("/endpoints/iris/invocations", "text/csv", b"5.1,3.5,1.4,0.2\n6.2,2.9,4.3,1.3\n"),
    Valid("/endpoints/iris/invocations", "application/jsonlines", b'{"features": [5.1, 3.5, 1.4, 0.2]}\n'),
    Valid("/invocations", "application/x-recordio-protobuf", b"\x0a\x23\xd7\xce\x04\x00\x00\x00\x0a\x02\x08\x01"),
    _json("/v1/chat/completions", _CHAT),
    _json("/v1/chat/completions", {**_CHAT, "stream": True}),
    _json("/v1/completions", {"model": "tinychat", "prompt": "hi", "max_tokens": 2}),
    _json("/v1/embeddings", {"model": "tinychat", "input": ["hi"]}),
    *(
        Valid(path, "", b"", "GET")
        for path in ("/healthz", "/ping", "/v1/models", "/v1/models/iris/metadata", "/v2/models/iris", "/metrics")
    ),
)

_NAMED = {"names": ["fuzzed"]}
_TABLE = {"model": "iris", "duration": "1h", "canary": {"model": "mnist", "weight": 30}}
_RULE = {"min": 1, "max": 3, "expectations": [{"metric": "concurrency", "value": 2}]}
CONTROL = tuple(
    one._replace(path=f"/control/v1{one.path}")
    for one in (
        _json("/services", {"name": "fuzzed", "model": "iris", "duration": "8h", "environment": {"A": "1"}}),
        _json("/services/fuzzed", {"duration": "2h", "limits": {"concurrency": 3}})._replace(method="PATCH"),
        _json("/services/fuzzed/canary", {"model": "mnist", "weight": 30})._replace(method="PUT"),
        _json("/services/fuzzed/canary/weight", {"weight": 30})._replace(method="PUT"),
        _json("/services/fuzzed/keys", {"id": "k", "expires_at": "2999-01-31T12:00:00Z", "scopes": ["infer"]}),
        _json("/services/fuzzed/keys/k/rotate", {"overlap": "1h"}),
        _json("/services/fuzzed/nodes", {"nodes": 1})._replace(method="PUT"),
        _json("/services/fuzzed/start", {"duration": "1h", "node": {"device": "cpu"}}),
        _json("/services/fuzzed/stop", {"reason": "tests"}),
        _json("/services/stop", _NAMED),
        _json("/services/delete", _NAMED),
        _json("/plan", {"services": {"fuzzed": _TABLE}}),
        _json("/apply", {"services": {"fuzzed": _TABLE}, "note": "fuzz"}),
        _json("/rollback", {"revision": 1}),
        _json("/scaling/simulate", {"scaling": _RULE, "series": [[0, {"concurrency": 9}], [1, {"concurrency": 1}]]}),
        _json("/users", {"name": "fuzzed", "role": "member", "project": "p"}),
        _json("/users/fuzzed/tokens", {"label": "l", "expires_at": "2999-01-31T12:00:00Z"}),
        _json("/services/digits/test/v1/models/digits:predict", {"instances": [1.0]}),
        *(
            Valid(path, "", b"", "GET")
            for path in (
                "/services?sort=expiry&limit=3",
                "/events?before=9&limit=2",
                "/revisions/1",
                "/me",
                "/machines",
            )
        ),
    )
)
"""Calls of the control API; what they change is called fuzzed."""

HUGE = (b"1e999", b"-1e999", b"9" * 400, b"NaN", b"null", b'"\\ud800"', b"18446744073709551616", b"{}", b"true")


def _truncated(dice: random.Random, body: bytes) -> bytes:
    return body[: dice.randrange(len(body) + 1)]


def _flipped(dice: random.Random, body: bytes) -> bytes:
    flipped = bytearray(body)
    for _ in range(dice.randint(1, 4) if body else 0):
        flipped[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
    return bytes(flipped)


def _other_number(dice: random.Random, body: bytes) -> bytes:
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", body))
    if not numbers:
        return dice.choice(HUGE)
    chosen = dice.choice(numbers)
    return body[: chosen.start()] + dice.choice(HUGE) + body[chosen.end() :]


def _deep(dice: random.Random, body: bytes) -> bytes:
    depth = dice.choice((10, 200, 5_000, 100_000))
    return b'{"instances":' + b"[" * depth + b"]" * dice.choice((depth, 0)) + b"}"


def _repeated(dice: random.Random, body: bytes) -> bytes:
    return body * dice.randint(2, 50)


def _other_body(dice: random.Random, body: bytes) -> bytes:
    return dice.choice(REQUESTS).body


def _as_it_is(dice: random.Random, body: bytes) -> bytes:
    return body


BODIES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _truncated,
    _flipped,
    _other_number,
    _deep,
    _repeated,
    _other_body,
    _as_it_is,
)
METHODS = ("GET", "PUT", "HEAD", "OPTIONS", "g\x01t", "CONNECT")
TYPES = ("text/csv", "application/json", "image/png", "multipart/form-data", "a/b; charset=\xff", "", "x" * 300)
ODD_HEADERS = (
    "Content-Length: -1",
    "Content-Length: 18446744073709551616",
    "Transfer-Encoding: xchunked",
    "Content-Encoding: gzip",
    "Content-Encoding: gzip, gzip",
    "Inference-Header-Content-Length: 99999999999",
    "Inference-Header-Content-Length: 3",
    "Accept: image/nothing",
    "Expect: 100-continue",
    "X-Request-Timeout: nan",
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA",
    "Range: bytes=0-0,1-1",
    " folded: line",
    "No colon",
    "X-Long: " + "a" * 70_000,
)
PATHS = ("/..%2f..%2fetc", "//", "/%00", "*", "/v1/models/%F0%9F%92%A9:predict", "/v2/models/x/versions/-1/infer", "")


def _chunked(dice: random.Random, body: bytes) -> bytes:
    """The body in chunks, of which one may tell a wrong size."""
    sent, at = b"", 0
    while at < len(body):
        piece = body[at : at + dice.randint(1, 40)]
        at += len(piece)
        told = b"%x" % len(piece) if dice.random() < 0.9 else dice.choice((b"-1", b"fffffffffffffffff", b"", b"zz"))
        sent += told + dice.choice((b"", b"", b";a=b")) + b"\r\n" + piece + b"\r\n"
    return sent + dice.choice((b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b""))


def request(dice: random.Random, requests: Sequence[Valid] = REQUESTS, *own_lines: str) -> bytes:
    """One request with some things wrong."""
    valid = dice.choice(requests)
    body = dice.choice(BODIES)(dice, valid.body)
    path = valid.path if dice.random() < 0.9 else dice.choice(PATHS)
    method = valid.method if dice.random() < 0.9 else dice.choice(METHODS)
    lines = [f"{method} {path} HTTP/1.1", "Host: a", *own_lines]
    lines.append(f"Content-Type: {valid.content_type if dice.random() < 0.85 else dice.choice(TYPES)}")
    if dice.random() < 0.3:
        lines.append(dice.choice(ODD_HEADERS))
    if dice.random() < 0.1:
        body = _flipped(dice, gzip.compress(body, mtime=0))
        lines.append("Content-Encoding: gzip")
    if dice.random() < 0.2:
        lines.append("Transfer-Encoding: chunked")
        body = _chunked(dice, body)
    else:
        length = len(body) if dice.random() < 0.9 else len(body) + dice.choice((-3, 5, 1 << 40))
        lines.append(f"Content-Length: {length}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return (head if dice.random() < 0.95 else _flipped(dice, head)) + body


def case(seed: int, number: int) -> bytes:
    """What goes over one connection: one request or some pipelined ones, the last of which asks to close."""
    dice = random.Random(f"{seed}:{number}")
    if dice.random() < 0.1:
        return conversation(dice)
    return _several(dice, lambda: request(dice))


def control_case(seed: int, number: int, token: str) -> bytes:
    """The same for the admin listener, by an administrator mostly."""
    dice = random.Random(f"{seed}:{number}:control")

    def asked() -> bytes:
        shown = token if dice.random() < 0.9 else dice.choice(("tgc_wrong", "\xff", "x" * 3000))
        return request(dice, CONTROL, f"Authorization: Bearer {shown}")

    return _several(dice, asked)


def conversation(dice: random.Random) -> bytes:
    """A websocket to the painter, and frames of which most are wrong in their form or in what they say."""
    path = dice.choice(
        ("/services/painter/generate", "/services/painter/generate", "/generate", "/services/x/generate")
    )
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: a",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
    ]
    lines.append(f"Sec-WebSocket-Key: {'dGhlIHNhbXBsZSBub25jZQ==' if dice.random() < 0.95 else 'AAAA'}")
    asked = json.dumps({"prompt": "a", "step": 1, "width": 8, "height": 8, "cfg": 1.5}).encode()
    frames = (_frame(dice, dice.choice(BODIES)(dice, asked)) for _ in range(dice.randint(0, 4)))
    return "\r\n".join([*lines, "", ""]).encode() + b"".join(frames)


def _frame(dice: random.Random, payload: bytes) -> bytes:
    """A client's frame; rarely one that a client may not send."""
    well = dice.random() < 0.6
    first = 0x81 if well else dice.randrange(256)
    masked = well or dice.random() < 0.8
    told = len(payload) if well or dice.random() < 0.7 else dice.choice((0, 125, 1 << 20, 1 << 40, (1 << 64) - 1))
    size = bytes([told]) if told < 126 else b"\x7e%b" % told.to_bytes(2, "big") if told < 1 << 16 else b"\x7f"
    size += told.to_bytes(8, "big") if told >= 1 << 16 else b""
    head = bytes([first, size[0] | (0x80 if masked else 0)]) + size[1:]
    mask = bytes(dice.randrange(256) for _ in range(4)) if masked else b""
    body = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload)) if masked else payload
    return head + mask + body


def _several(dice: random.Random, asked: Callable[[], bytes]) -> bytes:
    sent = b"".join(asked() for _ in range(dice.choice((1, 1, 1, 2, 4))))
    return sent + b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def statuses(port: int, sent: bytes, *, leave: bool) -> list[int]:
    """Send it, half-close, and return every status answered; one who leaves reads nothing."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWERED) as connection:
        try:
            connection.sendall(sent)
            if leave:
                return []
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                answer += chunk
        except (TimeoutError, OSError):
            pass  # it closed on what it refused, or waits for the rest of a body
    return [int(status) for status in STATUS.findall(answer)]
