"""The recorded cases of SageMaker's two faces, how an answer is compared with them, and where we differ on purpose.

cases.jsonl was recorded from sagemaker-xgboost-container, sagemaker-inference-toolkit, sagemaker-scikit-learn-container
the sagemaker SDK 2.257.7 and botocore 1.44.8 (all Apache-2.0), and from examples of the Amazon SageMaker developer
guide. `sure` tells which answers all of them agree on.
"""

import base64
import fnmatch
import io
import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adapters._record_pb2 import Record
from adapters._recordio import split_frames

Case = dict[str, Any]

CASES: list[Case] = [json.loads(line) for line in Path(__file__).with_name("cases.jsonl").read_bytes().splitlines()]

DIFFERENCES = {
    "content-type-018-unsupported-octet": "octets for a model that takes none are read by their looks",
    "content-type-024-absent": "a body without a Content-Type is read by its looks",
    "json-034-bad-wrong-key": "TensorFlow's and Hugging Face's `inputs` are read",
    "json-043-bom": "a byte-order mark is skipped",
    "response-form-008-ll-csv-unsupported": "every form is written in every type",
}
"""Case to reason: the deliberate differences. docs/protocols/sagemaker.md tells of them."""


def body(request: Mapping[str, Any]) -> bytes:
    """What the client sends."""
    if "body_b64" in request:
        return base64.b64decode(request["body_b64"])
    if "body_repeat" in request:
        parts = request["body_repeat"]
        return str(parts["prefix"] + parts["unit"] * parts["times"] + parts["suffix"]).encode()
    return str(request.get("body") or "").encode()


def mismatch(case: Case, status: int, headers: Mapping[str, str], reply: bytes) -> str:
    """How the answer differs from the recorded one; empty if it does not. Header names are in lower case."""
    expect = case["expect"]
    if status != expect["status"]:
        return f"status {status}, not {expect['status']}: {reply[:300]!r}"
    wanted_type = expect.get("content_type")
    if wanted_type not in (None, headers.get("content-type")):
        return f"content-type {headers.get('content-type')}, not {wanted_type}"
    for name, value in expect.get("headers", {}).items():
        if not _header_fits(value, headers.get(name.lower())):
            return f"header {name}: {headers.get(name.lower())!r}, not {value!r}"
    if expect.get("error_contains", "") not in reply.decode("utf-8", "replace"):
        return f"no {expect['error_contains']!r} in {reply[:300]!r}"
    return "" if _bodies_fit(case, reply) else f"{reply[:300]!r} is not {_wanted(case)}"


def _header_fits(wanted: str | None, found: str | None) -> bool:
    if wanted is None or found is None:
        return wanted == found
    pattern = wanted.removeprefix("re:")
    return found == wanted if pattern == wanted else re.search(pattern, found) is not None


def _wanted(case: Case) -> str:
    expect = case["expect"]
    shown = [expect[key] for key in ("json", "jsonlines", "records", "body", "body_b64") if key in expect]
    return str(shown[0] if shown else "")[:300]


def _bodies_fit(case: Case, reply: bytes) -> bool:
    expect = case["expect"]
    match case["compare"]:
        case "bytes":
            return reply == expect["body"].encode()
        case "json":
            return bool(json.loads(reply) == expect["json"])
        case "jsonlines":
            return [json.loads(line) for line in reply.decode().splitlines()] == expect["jsonlines"] and reply[-1] == 10
        case "json-glob":
            found = json.loads(reply)
            return all(_glob_fits(value, found.get(key)) for key, value in expect["json"].items())
        case "records":
            return labels(reply) == [record["label"] for record in expect["records"]]
        case "npy":
            found, wanted = (np.load(io.BytesIO(data)) for data in (reply, base64.b64decode(expect["body_b64"])))
            return found.dtype == wanted.dtype and found.shape == wanted.shape and bool((found == wanted).all())
        case "eventstream":
            wanted, found = (joined(data) for data in (base64.b64decode(expect["body_b64"]), reply))
            return found == wanted
    return "json" not in expect or bool(json.loads(reply) == expect["json"])


def _glob_fits(wanted: Any, found: Any) -> bool:
    return fnmatch.fnmatchcase(found, wanted) if isinstance(wanted, str) else bool(found == wanted)


def labels(body: bytes) -> list[dict[str, list[float]]]:
    """The label map of each record."""
    records = [Record.FromString(b"".join(parts)) for parts in split_frames(body)]
    return [{name: list(value.float32_tensor.values) for name, value in one.label.items()} for one in records]


def joined(body: bytes) -> tuple[list[Any], list[Any]]:
    """The JSON lines that the parts of an event stream add up to, and its exceptions without their texts."""
    text, failures = b"", []
    for headers, payload in events(body):
        if headers[":message-type"] == "event":
            text += payload
        else:
            failures.append((headers[":exception-type"], json.loads(payload)["ErrorCode"]))
    return [json.loads(line) for line in text.splitlines()], failures


def events(body: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """The headers and the payload of each frame."""
    at = 0
    while at < len(body):
        total, size = struct.unpack_from(">II", body, at)
        yield dict(_event_headers(body[at + 12 : at + 12 + size])), body[at + 12 + size : at + total - 4]
        at += total


def _event_headers(data: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]]
        at += 2 + len(name)
        (length,) = struct.unpack_from(">H", data, at)
        yield name.decode(), data[at + 2 : at + 2 + length].decode()
        at += 2 + length
