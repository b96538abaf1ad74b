"""The operators' pages: health, readiness, metrics, status, and the access log."""

import json

import httpx
import pytest
from live import LiveGateway

from gateway.cli import main

BODY = {"inputs": {"a": [1], "b": [2]}}


def test_health_and_readiness(live: LiveGateway) -> None:
    """Live while the process is, ready once every model is available."""
    assert httpx.get(f"{live.url}/healthz").status_code == 200
    assert httpx.get(f"{live.url}/readyz").status_code == 200


def test_status_lists_every_version(live: LiveGateway) -> None:
    """Name, version, state and provider of all that is loaded."""
    page = httpx.get(f"{live.url}/statusz").json()
    assert page["ready"] is True
    found = {(one["name"], one["version"], one["state"]) for one in page["models"]}
    assert found == {("one", 1, "AVAILABLE"), ("two", 1, "AVAILABLE"), ("three", 1, "AVAILABLE")}


def test_the_command_lists_what_the_running_gateway_serves(
    live: LiveGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line a version, signatures and all, as where the models are loaded for the command."""
    assert main(["models", "--url", live.url]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    page = httpx.get(f"{live.url}/statusz").json()
    shown = [line[head.index("SIGNATURES") :] for line in lines]
    assert shown == [signature for one in page["models"] for signature in one["signatures"]]
    assert shown[0].startswith("serving_default(")


def test_a_request_id_is_taken_or_made(live: LiveGateway) -> None:
    """A client's own id comes back and is in the log; a malformed one is replaced."""
    url = f"{live.url}/v1/models/alpha:predict"
    assert httpx.post(url, json=BODY, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert httpx.post(url, json=BODY).headers["x-request-id"] != httpx.post(url, json=BODY).headers["x-request-id"]
    assert httpx.post(url, json=BODY, headers={"X-Request-Id": "x" * 500}).headers["x-request-id"] != "x" * 500
    live.wait_for_log('"id":"mine-1"')


def test_each_request_is_one_log_line(live: LiveGateway) -> None:
    """JSON, with what is needed to find a request and without its payload."""
    ids = [f"line-{number}" for number in range(3)]
    httpx.post(f"{live.url}/v1/models/alpha:predict", json=BODY, headers={"X-Request-Id": ids[0]})
    httpx.post(f"{live.url}/v1/models/nothing:predict", json=BODY, headers={"X-Request-Id": ids[1]})
    httpx.get(f"{live.url}/nowhere", headers={"X-Request-Id": ids[2]})
    live.wait_for_log(ids[2])
    lines = [json.loads(line) for line in live.errors().splitlines() if line.startswith("{")]
    good, unknown, nowhere = ([line for line in lines if line["id"] == one] for one in ids)
    assert [(line["status"], line["service"], line["operation"]) for line in good] == [(200, "alpha", "predict")]
    assert [line["status"] for line in unknown] == [404]
    assert [line["status"] for line in nowhere] == [404]
    assert good[0]["bytes_in"] > 0
    assert good[0]["ms"] > 0
