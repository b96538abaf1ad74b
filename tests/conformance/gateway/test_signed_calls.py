"""Calls that AWS's clients sign, over HTTP."""

import gzip
import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from live import LiveGateway, gateway

CONFIG = """
models_dir = "models"
[services.signed]
model = "one"
app_auth = true
app_codes = ["signed-code"]
aws_credentials = [{ access_key_id = "AKIDONE", secret = { file = "secret" } }]
[services.other]
model = "one"
app_auth = true
aws_credentials = [{ access_key_id = "AKIDTWO", secret = { file = "secret" } }]
[services.open]
model = "one"
"""
PATH = "/endpoints/signed/invocations"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """signed and other are signed for by different access keys with one secret; open needs none."""
    base = tmp_path_factory.mktemp("signed")
    (base / "models" / "one").mkdir(parents=True)
    (base / "models" / "one" / "model.toml").write_text('backend = "echo"\n[echo.inputs.x]\nshape = [-1, 2]\n')
    (base / "secret").write_text("the-secret\n")
    (base / "gateway.toml").write_text(CONFIG)
    with gateway(base / "gateway.toml") as running:
        running.wait_until("/readyz", 200)
        yield running


def sign(
    live: LiveGateway,
    body: bytes,
    path: str = PATH,
    key: str = "AKIDONE",
    secret: str = "the-secret",
    age: timedelta = timedelta(),
) -> dict[str, str]:
    """The headers of a signed call, put together as AWS's guide says and not by the code under test."""
    moment = (datetime.now(UTC) - age).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/us-east-1/sagemaker/aws4_request"
    headers = {"content-type": "text/csv", "host": f"127.0.0.1:{live.port}", "x-amz-date": moment}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"POST\n{path}\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = hmac.digest(signing, text.encode(), "sha256").hex()
    credential = f"Credential={key}/{scope}"
    return headers | {"authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"}


def post(live: LiveGateway, body: bytes, headers: dict[str, str], path: str = PATH) -> httpx.Response:
    """The call, with what it carries and nothing that a client would add to it."""
    return httpx.post(live.url + path, content=body, headers=headers)


@pytest.mark.parametrize("body", [b"1,2", b"1.5,2.5\n" * 200_000])
def test_a_signed_call_is_answered(live: LiveGateway, body: bytes) -> None:
    """Without any key; large bodies are hashed off the event loop."""
    assert post(live, body, sign(live, body)).status_code == 200


def test_a_prefix_is_signed_with_the_rest(live: LiveGateway) -> None:
    """The path as the client sent it counts."""
    path = "/services/signed/invocations"
    assert post(live, b"1,2", sign(live, b"1,2", path), path).status_code == 200
    assert post(live, b"1,2", sign(live, b"1,2", "/invocations"), path).status_code == 401


def test_a_compressed_body_is_signed_as_it_is_sent(live: LiveGateway) -> None:
    """The signature is over the bytes on the wire."""
    sent = gzip.compress(b"1,2")
    headers = sign(live, sent) | {"content-encoding": "gzip"}
    assert post(live, sent, headers).status_code == 200
    assert post(live, sent, sign(live, b"1,2") | {"content-encoding": "gzip"}).status_code == 403


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"secret": "wrong"}, "does not match"),
        ({"key": "AKIDNOBODY"}, "access key id is not known"),
        ({"age": timedelta(minutes=16)}, "15 minutes"),
        ({"age": -timedelta(minutes=16)}, "15 minutes"),
        ({"path": "/endpoints/open/invocations"}, "does not match"),
    ],
)
def test_a_wrong_signature_is_refused(live: LiveGateway, change: dict[str, object], text: str) -> None:
    """As AWS refuses it, with what is wrong."""
    reply = post(live, b"1,2", sign(live, b"1,2", **change))  # type: ignore[arg-type]
    assert (reply.status_code, reply.headers["x-amzn-errortype"]) == (403, "InvalidSignatureException")
    assert text in reply.json()["message"]


def test_another_body_is_refused(live: LiveGateway) -> None:
    """One digit is enough."""
    assert post(live, b"1,3", sign(live, b"1,2")).status_code == 403


def test_another_services_signature_is_forbidden(live: LiveGateway) -> None:
    """It is good, but not for this service."""
    reply = post(live, b"1,2", sign(live, b"1,2", key="AKIDTWO"))
    assert (reply.status_code, reply.headers["x-amzn-errortype"]) == (403, "AccessDeniedException")


def test_no_credential_is_refused(live: LiveGateway) -> None:
    """In AWS's words."""
    reply = post(live, b"1,2", {"content-type": "text/csv"})
    assert (reply.status_code, reply.headers["x-amzn-errortype"]) == (403, "MissingAuthenticationTokenException")


def test_a_key_beside_a_signature_counts(live: LiveGateway) -> None:
    """For clients behind a proxy that changes what they have signed."""
    headers = sign(live, b"1,2", secret="wrong")
    assert post(live, b"1,2", headers | {"x-tensorgate-key": "signed-code"}).status_code == 200
    assert post(live, b"1,2", sign(live, b"1,2") | {"x-tensorgate-key": "wrong"}).status_code == 403


def test_an_open_service_looks_at_no_signature(live: LiveGateway) -> None:
    """Dummy credentials are how clients are pointed at something that is not AWS."""
    path = "/endpoints/open/invocations"
    assert post(live, b"1,2", sign(live, b"1,2", path, "AKIDANY", "any"), path).status_code == 200


def test_secrets_appear_in_no_log(live: LiveGateway, tmp_path: Path) -> None:
    """Nor do signatures."""
    headers = sign(live, b"1,2", secret="wrong")
    post(live, b"1,2", headers | {"x-request-id": "signed-1"})
    live.wait_for_log("signed-1")
    assert headers["authorization"].rpartition("=")[2] not in live.errors()
    assert "the-secret" not in live.errors()
