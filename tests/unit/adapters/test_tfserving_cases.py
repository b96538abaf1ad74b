"""The recorded cases against the adapter alone: its pure functions around a model made of numpy."""

from typing import Any

import numpy as np
import pytest
from conformance.tfserving.cases import CASES, DEFAULT_MODEL, DIFFERENCES, Case, body, mismatch, signatures
from msgspec.structs import replace

from adapters.tfserving import Config, create
from gateway.body import inflate
from gateway.errors import GatewayError, LabelNotFound, ModelNotFound
from gateway.interfaces import Answer, DecodeLimits, Describe, Infer, Status
from gateway.paths import PathTable
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    ModelStatus,
    Reply,
    Signature,
    Target,
    TensorSpec,
    VersionStatus,
)

TRANSPORT = {
    "enc-gzip-corrupt": "the core undoes gzip",
    "err-method-head": "the core drops the body of an answer to HEAD",
    "err-method-trace": "the core refuses the method",
    "err-not-v1-v2": "no adapter claims the path",
    "err-v1-no-slash": "no adapter claims the path",
    "enc-shape-mismatch": "the model compares shapes",
    "enc-rank-mismatch": "the model compares shapes",
}
"""Case to who answers it; the live test runs these."""

OPS = {
    "identity": lambda x: x,
    "half_plus_two": lambda x: x * np.float32(0.5) + np.float32(2),
    "sum_all": lambda x: np.asarray(x.sum()),
    "first_row": lambda x: x[:1],
    "cast_int64": lambda x: x.astype(np.int64),
    "cast_float16": lambda x: x.astype(np.float16),
    "cast_uint16": lambda x: x.astype(np.uint16),
}


def _shape(given: list[int | None] | None) -> tuple[int | None, ...] | None:
    return None if given is None else tuple(given)


def _output(name: str, rule: dict[str, str], inputs: dict[str, Any]) -> TensorSpec:
    source = inputs[rule["from"]]
    dtype = rule["op"].removeprefix("cast_") if rule["op"].startswith("cast_") else source["dtype"]
    return TensorSpec(f"{name}:0", dtype, () if rule["op"] == "sum_all" else _shape(source["shape"]))


def _metadata(case: Case, version: int) -> ModelMetadata:
    declared = {
        name: Signature(
            name=name,
            method=one["method"],
            inputs={x: TensorSpec(f"{x}:0", spec["dtype"], _shape(spec["shape"])) for x, spec in one["inputs"].items()},
            outputs={y: _output(y, rule, one["inputs"]) for y, rule in one["outputs"].items()},
        )
        for name, one in signatures(case).items()
    }
    return ModelMetadata("M", version, "numpy", declared)


def _status(case: Case) -> ModelStatus:
    model = DEFAULT_MODEL | case.get("model", {})
    versions = [VersionStatus(v["version"], v["state"], v.get("error_message", "")) for v in model["versions"]]
    return ModelStatus(model["name"], tuple(sorted(versions, key=lambda v: -v.version)), model["labels"])


def _pick(status: ModelStatus, target: Target) -> int:
    """The version that answers, as the core finds it."""
    known = target.model == status.name
    version = target.version
    if target.label is not None:
        if not known or target.label not in status.labels:
            raise LabelNotFound("text", target.model or "", target.label)
        version = status.labels[target.label]
    available = [
        v.version for v in status.versions if known and v.state == "AVAILABLE" and version in (None, v.version)
    ]
    if not available:
        raise ModelNotFound("text", target.model or "", version)
    return max(available)


def _run(case: Case, request: InferenceRequest) -> InferenceResponse:
    rules = signatures(case)[request.signature]["outputs"]
    wanted = request.outputs or rules
    return InferenceResponse(
        {y: OPS[rule["op"]](request.inputs[rule["from"]]) for y, rule in rules.items() if y in wanted}
    )


def _answer(case: Case) -> Reply:
    given = case["request"]
    config = Config(cors_origins=("*",)) if case.get("server_flags") else Config()
    adapter = create(config, DecodeLimits())
    headers = [(name.lower().encode(), value.encode()) for name, value in given.get("headers", {}).items()]
    path, _, query = given["path"].partition("?")
    payload = body(given)
    if (b"content-encoding", b"gzip") in [(name, value.lower()) for name, value in headers]:
        payload = inflate(payload, 1 << 20)
    head = Call(given["method"], path, {}, query, headers, payload)
    try:
        route = PathTable({"tfserving": adapter}).find(head)
        call = replace(head, params=route.params)
        return _operate(case, route.operation, call)
    except GatewayError as error:
        return adapter.encode_error(error, head)


def _operate(case: Case, operation: Any, call: Call) -> Reply:
    status = _status(case)
    if isinstance(operation, Answer):
        return operation.reply(call)
    target = operation.target(call)
    if isinstance(operation, Status):
        return operation.encode(status if target.model == status.name else None, call, target)
    try:
        metadata = _metadata(case, _pick(status, target))
    except ModelNotFound:
        if isinstance(operation, Infer) and operation.check_body:
            operation.check_body(call)
        raise
    if isinstance(operation, Describe):
        return operation.encode(metadata, call, target)
    assert isinstance(operation, Infer)
    request = operation.decode(call, target, metadata)
    return operation.encode(_run(case, request), request, call)


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] not in TRANSPORT], ids=lambda case: case["id"])
def test_answer_is_as_recorded(case: Case) -> None:
    """The adapter answers as TF Serving did, except where it differs on purpose, and there it does differ."""
    reply = _answer(case)
    headers = {"content-type": reply.media_type} | {name.lower(): value for name, value in reply.headers}
    found = mismatch(case, reply.status, headers, reply.body)
    if case["id"] in DIFFERENCES:
        assert found
    else:
        assert found == ""


def test_listed_cases_exist() -> None:
    """Every exception made here is for a case that there is."""
    assert (TRANSPORT.keys() | DIFFERENCES.keys()) <= {case["id"] for case in CASES}
