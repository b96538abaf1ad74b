"""The recorded cases of Seldon's protocol, how an answer is compared with them, and where we differ on purpose.

cases.jsonl was recorded from seldon-core 1.18.2, or is what its executor's own tests say (SeldonIO/seldon-core).
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Case = dict[str, Any]

CASES: list[Case] = [
    json.loads(line) for line in Path(__file__).with_name("cases.jsonl").read_text("utf-8").splitlines()
]

DIFFERENCES = {
    "form-curl-default-ct": "a JSON body is read whatever its type is called",
    "form-text-ct": "a JSON body is read whatever its type is called",
    "out-list-ragged-500": "lists of different lengths come back as they are",
    "out-unicode-escaped": "answers are UTF-8; ascii_json is the switch",
    "out-sorted-keys": "members keep the class's order",
    "meta-null-500": "no meta and null mean the same",
    "err-nd-ragged": "400: the client's mistake",
    "err-data-null": "400: the client's mistake",
    "err-bin-padding": "padding may lack",
    "err-form-badjson": "400: the client's mistake",
    "err-typeerror-retried": "a class is called once",
    "err-one-arg": "a class is called with what it takes",
    "err-unknown-get": "404, and nobody's path has nobody's form",
    "err-unknown-post": "404",
    "err-put": "405",
    "err-deep-nesting": "400: the client's mistake",
    "cls-load-attributeerror": "a class that cannot be loaded is not served",
    "fb-no-routing-arg": "a class is called with what it takes",
}
"""Case to reason: the deliberate differences. docs/protocols/seldon.md tells of them."""

ELSEWHERE = {
    "gw-unreachable": "503, since it may be repeated; tests/faults ends workers",
    "gw-tf-noname": "TF Serving's path, see below",
    "gw-v2-noname": "the Open Inference Protocol's path, see below",
}
"""Case to why it is not among those that the classes answer."""


def body(request: Mapping[str, Any]) -> bytes:
    """What the client sends."""
    return (request.get("body") or "").encode(request.get("body_encoding", "utf-8"))


def mismatch(case: Case, status: int, headers: Mapping[str, str], reply: bytes) -> str:
    """How the answer differs from the recorded one; empty if it does not. Header names are in lower case."""
    expected = case["expect"]
    found = [] if status == expected["status"] else [f"status {status}, not {expected['status']}"]
    found += [
        f"header {name}: {headers.get(name.lower())}"
        for name, value in expected.get("headers", {}).items()
        if headers.get(name.lower()) != value
    ]
    found += [
        f"header {name}: {headers.get(name.lower())}"
        for name, pattern in expected.get("headers_match", {}).items()
        if not re.search(pattern, headers.get(name.lower(), ""))
    ]
    return "; ".join(found + _body_faults(expected, reply))


def _body_faults(expected: Mapping[str, Any], reply: bytes) -> list[str]:
    try:
        document = json.loads(reply)
    except ValueError:
        document = None
    info = document.get("status", {}).get("info", "") if isinstance(document, dict) and "status" in document else ""
    good = {
        "json": lambda wanted: _same(document, wanted),
        "json_contains": lambda wanted: _has(document, wanted),
        "error_contains": lambda wanted: wanted in info,
        "body_contains": lambda wanted: wanted in reply.decode("utf-8", "replace"),
    }
    shown = reply[:300].decode("utf-8", "replace")
    return [f"{key}: {shown}" for key, holds in good.items() if key in expected and not holds(expected[key])]


def _same(value: Any, wanted: Any) -> bool:
    """SPEC: 1 and 1.0 are the same number, true and 1 are not the same."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(_same(value[key], wanted[key]) for key in value)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    return bool(value == wanted)


def _has(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(key in value and _has(value[key], one) for key, one in wanted.items())
    return _same(value, wanted)
