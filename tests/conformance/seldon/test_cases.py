"""The recorded cases over HTTP, against a live gateway whose models are the cases' classes, in workers of their own."""

import http.client
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from conformance.seldon import models
from conformance.seldon.cases import CASES, DIFFERENCES, ELSEWHERE, Case, body, mismatch
from live import LiveGateway, gateway

LIVE = [case for case in CASES if case["id"] not in ELSEWHERE]

NEVER_READY = {"load_attr"}

START_SECONDS = 90.0
"""A worker is a Python that imports numpy, and there are some thirty."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    base = tmp_path_factory.mktemp("seldon")
    for case in LIVE:
        models.write(case, base / "models" / models.serving_name(case))
    (base / "seldon.toml").write_text(
        'models_dir = "models"\n[gateway]\nprotocols = ["seldon"]\ndevice = "cpu"\n', "utf-8"
    )
    with gateway(base / "seldon.toml") as live:
        for name in {models.serving_name(case) for case in LIVE} - NEVER_READY:
            live.wait_until(f"/services/{name}/ready", 200, START_SECONDS)
        yield live


def _answer(live: LiveGateway, case: Case, request: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=30)
    try:
        headers = {"X-Tensorgate-Service": models.serving_name(case), **request["headers"]}
        path = request["path"].replace("/myns/mydep/", f"/myns/{models.serving_name(case)}/")
        connection.request(request["method"], path, body(request) or None, headers)
        reply = connection.getresponse()
        return reply.status, {key.lower(): value for key, value in reply.getheaders()}, reply.read()
    finally:
        connection.close()


@pytest.mark.parametrize("case", LIVE, ids=lambda case: case["id"])
def test_answer_is_as_recorded(served: LiveGateway, case: Case) -> None:
    """The gateway answers as seldon-core did, except where it differs on purpose, and there it does differ."""
    for request in case.get("before", []):
        _answer(served, case, request)
    found = mismatch(case, *_answer(served, case, case["request"]))
    if case["id"] in DIFFERENCES:
        assert found
    else:
        assert found == ""


def test_no_answer_is_a_crash(served: LiveGateway) -> None:
    """What a client got wrong is never answered with a 5xx, whatever seldon-core did."""
    wrong = [case for case in LIVE if case["area"] == "errors" and case["model"] == "echo"]
    statuses = {case["id"]: _answer(served, case, case["request"])[0] for case in wrong}
    assert {name: status for name, status in statuses.items() if status >= 500} == {}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/models:predict", {"instances": [1.0, 2.0]}),
        ("/v2/models/infer", {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}),
    ],
)
def test_executors_nameless_paths_are_served(tmp_path: Path, path: str, sent: dict[str, Any]) -> None:
    """The paths without a model's name that the executor adds to other protocols are answered by theirs."""
    (tmp_path / "models" / "only").mkdir(parents=True)
    (tmp_path / "models" / "only" / "model.toml").write_text('backend = "echo"', "utf-8")
    with gateway("--models", tmp_path / "models", "--device", "cpu") as live:
        live.wait_until("/readyz", 200)
        assert httpx.post(f"{live.url}{path}", json=sent).status_code == 200


def test_listed_cases_exist() -> None:
    """Every exception made here is for a case that there is, and none of the differences for one that must hold."""
    keep = {case["id"]: case["keep"] for case in CASES}
    assert DIFFERENCES.keys() | ELSEWHERE.keys() <= keep.keys()
    assert [name for name in DIFFERENCES if keep[name] != "free"] == []
