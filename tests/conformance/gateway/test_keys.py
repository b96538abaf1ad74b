"""Application keys over HTTP, in TF Serving's dialect."""

import json
import socket
from typing import BinaryIO

import httpx
import pytest
from live import LiveGateway

BODY = {"inputs": {"a": [1], "b": [2]}}


def post(live: LiveGateway, path: str, **headers: str) -> httpx.Response:
    """A predict call with those headers, underscores as hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(live.url + path, json=BODY, headers=named)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "APPCODE beta-code"},
        {"Authorization": "Bearer beta-code"},
        {"X_Tensorgate_Key": "beta-code"},
        {"Authorization": "AWS4-HMAC-SHA256 Credential=a", "X_Tensorgate_Key": "beta-code"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/models/beta:predict", "/services/beta/v1/models:predict"])
def test_the_services_key_opens_it(live: LiveGateway, path: str, headers: dict[str, str]) -> None:
    """In each of the three forms, on named and nameless paths."""
    assert post(live, path, **headers).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Authorization": "APPCODE wrong"}, {"Authorization": "Basic beta-code"}])
def test_no_key_or_a_wrong_one_is_401(live: LiveGateway, headers: dict[str, str]) -> None:
    """In the caller's dialect, with the challenge that says what is expected."""
    reply = post(live, "/v1/models/beta:predict", **headers)
    assert reply.status_code == 401
    assert "key" in reply.json()["error"]
    assert "APPCODE" in reply.headers["www-authenticate"]


def test_another_services_key_is_403(live: LiveGateway) -> None:
    """Valid, but not for this service."""
    assert post(live, "/v1/models/beta:predict", Authorization="APPCODE gamma-code").status_code == 403


@pytest.mark.parametrize("path", ["/v1/models/beta", "/v1/models/beta/metadata"])
def test_status_and_metadata_need_the_key_too(live: LiveGateway, path: str) -> None:
    """A protected service tells nothing to strangers."""
    assert httpx.get(live.url + path).status_code == 401
    assert httpx.get(live.url + path, headers={"Authorization": "APPCODE beta-code"}).status_code == 200


def test_an_open_service_takes_any_credential(live: LiveGateway) -> None:
    """Clients that always send a bearer token are not turned away where none is needed."""
    assert post(live, "/v1/models/alpha:predict", Authorization="Bearer whatever").status_code == 200


def test_401_comes_before_the_body(live: LiveGateway) -> None:
    """A stranger's upload is refused by its head alone."""
    head = "POST /v1/models/beta:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(head.encode())
        with connection.makefile("rb") as answers:
            assert _status(answers) == 401
            # The connection lives on: the rest of the upload is dropped, the next request is answered.
            connection.sendall(b" " * 1000 + b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert _status(answers) == 200


def _status(answers: BinaryIO) -> int:
    """The status of the next answer, read to its end."""
    status = int(answers.readline().split()[1])
    head = iter(answers.readline, b"\r\n")
    lengths = [int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length:")]
    answers.read(lengths[0])
    return status


@pytest.mark.parametrize(
    ("path", "code", "service"), [("beta", "wrong", "beta"), ("beta", "gamma-code", "beta"), ("made-up", "wrong", None)]
)
def test_the_log_tells_which_service_a_refused_call_meant(
    live: LiveGateway, path: str, code: str, service: str | None
) -> None:
    """So that an operator sees whose keys are tried; a name that nobody has is no service."""
    name = f"refused-{path}-{code}"
    post(live, f"/v1/models/{path}:predict", Authorization=f"APPCODE {code}", X_Request_Id=name)
    live.wait_for_log(name)
    (line,) = (json.loads(line) for line in live.errors().splitlines() if name in line)
    assert line.get("service") == service
    assert live.metric("tensorgate_requests_total", service="beta", code="401") == 0


def test_keys_appear_in_no_log(live: LiveGateway) -> None:
    """Neither right nor wrong ones."""
    post(live, "/v1/models/beta:predict?key=in-query", Authorization="APPCODE secret-and-wrong")
    post(live, "/v1/models/beta:predict", Authorization="APPCODE beta-code")
    live.wait_for_log('"status":401')
    assert "secret-and-wrong" not in live.errors()
    assert "beta-code" not in live.errors()
    assert "in-query" not in live.errors()
