"""The recorded cases of TF Serving's REST API, how an answer is compared with them, and where we differ on purpose.

cases.jsonl was recorded from TF Serving's own JSON and HTTP code (tensorflow/serving at 9d981c5c, Apache-2.0).
"""

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Case = dict[str, Any]

CASES: list[Case] = [
    json.loads(line) for line in Path(__file__).with_name("cases.jsonl").read_text("utf-8").splitlines()
]

DIFFERENCES = {
    "row-uint8-wraps": "400 instead of numbers that were silently changed",
    "row-int8-wraps": "400 instead of numbers that were silently changed",
    "row-uint16-unsupported": "uint16 is served",
    "row-float16-unsupported": "float16 is served",
    "col-uint16-unsupported": "uint16 is served",
    "out-half-unsupported": "float16 is served",
    "out-uint16-unsupported": "uint16 is served",
    "enc-gzip-upper-case-name": "names of content codings are case-insensitive",
    "enc-gzip-two-members": "a gzip stream may have several members",
    "err-version-overflow": "the error has its text",
    "st-version-overflow": "the error has its text",
    "err-query-string-post": "query strings are ignored",
    "err-query-string-get": "query strings are ignored",
    "st-label-returns-all": "the label's version is told, as the guide promises",
    "st-unknown-label-still-200": "an unknown label is an error, as everywhere else",
    "cls-mixed-int-then-float": "whole numbers are welcome among floats",
    "cls-int-for-float-feature": "whole numbers are welcome where floats are wanted",
    "reg-output-name": "the only output cannot be mistaken, whatever its name",
}
"""Case to reason: the deliberate differences. docs/protocols/tfserving.md tells of them."""

DEFAULT_MODEL = {"name": "M", "versions": [{"version": 1, "state": "AVAILABLE"}], "labels": {}}


def signatures(case: Case) -> dict[str, dict[str, Any]]:
    """Signature name to {inputs, outputs, method}, every output as {from, op}."""
    given = case.get("signatures") or {
        "serving_default": {"inputs": case["inputs"], "outputs": case["outputs"], "method": case["area"]}
    }
    return {name: {**one, "outputs": _outputs(one), "method": _method(one)} for name, one in given.items()}


def _outputs(signature: dict[str, Any]) -> dict[str, dict[str, str]]:
    if signature["outputs"] != "echo":
        outputs: dict[str, dict[str, str]] = signature["outputs"]
        return outputs
    return {f"{name}_out": {"from": name, "op": "identity"} for name in signature["inputs"]}


def _method(signature: dict[str, Any]) -> str:
    method = signature.get("method", "predict").rpartition("/")[2]
    return method if method in ("classify", "regress") else "predict"


def body(request: Mapping[str, Any]) -> bytes:
    """What the client sends."""
    if "body_b64" in request:
        return base64.b64decode(request["body_b64"])
    return str(request.get("body", "")).encode()


def mismatch(case: Case, status: int, headers: Mapping[str, str], reply: bytes) -> str:
    """How the answer differs from the recorded one; empty if it does not. Header names are in lower case."""
    expected = case["expect"]
    found = [_mismatch_of(key, value, case, status, headers, reply) for key, value in expected.items()]
    return "; ".join(filter(None, found))


def _mismatch_of(key: str, value: Any, case: Case, status: int, headers: Mapping[str, str], reply: bytes) -> str:
    shown = reply[:300]
    if key == "status":
        return "" if status == value else f"status {status}, not {value}: {shown!r}"
    if key in ("json", "json_text"):
        wanted = json.loads(value) if key == "json_text" else value
        got = _loads(reply)
        if case["area"] == "metadata":
            wanted, got = _without_graph_names(wanted), _without_graph_names(got)
        return "" if alike(wanted, got, _is_single(case)) else f"{shown!r} is not {wanted}"
    if key == "error_contains":
        error = (_loads(reply) or {}).get("error", "")
        lost = [part for part in value if part not in error]
        return f"no {lost} in {error!r}" if lost else ""
    if key == "body":
        return "" if reply == value.encode() else f"body {shown!r}"
    if key == "text_contains":
        return "" if all(part.encode() in reply for part in value) else f"no {value} in {shown!r}"
    if key == "bytes_contain_b64":
        return "" if all(base64.b64decode(part) in reply for part in value) else f"no {value} in {shown!r}"
    if key == "headers":
        lost = [name for name, text in value.items() if headers.get(name.lower()) != text]
        return f"headers {lost} of {dict(headers)}" if lost else ""
    if key == "headers_absent":
        extra = [name for name in value if name.lower() in headers]
        return f"headers {extra}" if extra else ""
    # What remains is information: TF Serving's whole text, and the digits that it chose for numbers.
    return "" if key in ("tfs_error", "number_tokens") else f"{key} is not understood"


def _without_graph_names(value: Any) -> Any:
    """What a graph calls its tensors is its own business."""
    if isinstance(value, list):
        return [_without_graph_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {"name"} if "tensor_shape" in value else set()
    return {key: _without_graph_names(item) for key, item in value.items() if key not in names}


def _loads(reply: bytes) -> Any:
    try:
        return json.loads(reply)
    except ValueError:
        return None


def _is_single(case: Case) -> bool:
    """Whether floats are to be compared as float32."""
    return all(spec["dtype"] != "float64" for one in signatures(case).values() for spec in one["inputs"].values())


def alike(wanted: Any, found: Any, single: bool) -> bool:
    """Whether two JSON values are equal, floats after rounding to the output's dtype."""
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(alike(*pair, single) for pair in zip(wanted, found, strict=True))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(alike(wanted[key], found[key], single) for key in wanted)
    if isinstance(wanted, float) and isinstance(found, float):
        pair = (np.float32(wanted), np.float32(found)) if single else (wanted, found)
        same = pair[0] == pair[1] or (math.isnan(wanted) and math.isnan(found))
        return bool(same) and math.copysign(1, wanted) == math.copysign(1, found)
    return type(wanted) is type(found) and bool(wanted == found)
