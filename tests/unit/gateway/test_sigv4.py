"""AWS Signature Version 4, against requests that AWS's own client has signed."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway import sigv4
from gateway.auth import Authenticator
from gateway.config import AwsCredential, ConfigError, Secret, ServiceConfig
from gateway.errors import Forbidden, Unauthenticated
from gateway.routing import Service
from gateway.types import Call

DATA = json.loads((Path(__file__).parents[2] / "data" / "sigv4" / "requests.json").read_text("utf-8"))
SECRET = DATA["secret"]
REQUESTS = {one["name"]: one for one in DATA["requests"]}


def signed(name: str) -> tuple[Call, bytes]:
    """The recorded request as the server sees it, and its body."""
    one: dict[str, Any] = REQUESTS[name]
    headers = [(key.lower().encode(), value.encode("utf-8")) for key, value in one["headers"].items()]
    return Call(one["method"], one["path"], {}, one["query"], headers), base64.b64decode(one["body"])


def moment(call: Call) -> float:
    """When the request was signed."""
    text = call.header(b"x-amz-date")
    assert text is not None
    return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def edited(call: Call, name: bytes, value: bytes | None) -> Call:
    """The call with a header put, or taken out."""
    others = [(key, old) for key, old in call.headers if key != name]
    return replace(call, headers=others if value is None else [*others, (name, value)])


def rewritten(call: Call, old: str, new: str) -> Call:
    """The call with a piece of its Authorization header put otherwise."""
    text = call.header(b"authorization")
    assert text is not None
    assert old in text
    return edited(call, b"authorization", text.replace(old, new).encode())


@pytest.mark.parametrize("name", REQUESTS)
def test_real_signatures_match(name: str) -> None:
    """Every recorded request is verified, whatever its path, prefix, headers, query and body."""
    call, body = signed(name)
    signature = sigv4.read(call, moment(call))
    assert (signature.access_key_id, signature.region) == ("AKIDEXAMPLE", "eu-west-1")
    assert sigv4.matches(signature, SECRET, call, body)


@pytest.mark.parametrize("name", REQUESTS)
def test_another_secret_does_not_match(name: str) -> None:
    """One character is enough."""
    call, body = signed(name)
    assert not sigv4.matches(sigv4.read(call, moment(call)), SECRET[:-1] + "z", call, body)


@pytest.mark.parametrize(
    "change",
    [
        lambda call: replace(call, method="PUT"),
        lambda call: replace(call, raw_path="/endpoints/other/invocations"),
        lambda call: replace(call, raw_path="/services/iris" + call.raw_path),
        lambda call: replace(call, query="a=1"),
        lambda call: edited(call, b"host", b"elsewhere.example.com"),
        lambda call: edited(call, b"content-type", b"application/json"),
        lambda call: edited(call, b"accept", None),
        lambda call: replace(call, headers=[*call.headers, (b"accept", b"text/csv")]),
        lambda call: edited(call, b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD"),
    ],
)
def test_what_was_signed_cannot_be_changed(change: Callable[[Call], Call]) -> None:
    """Method, path, query and signed headers are as they were, or the signature does not match."""
    call, body = signed("plain")
    signature = sigv4.read(call, moment(call))
    assert not sigv4.matches(signature, SECRET, change(call), body)


def test_the_body_is_signed() -> None:
    """One byte more or less does not match."""
    call, body = signed("plain")
    signature = sigv4.read(call, moment(call))
    assert not sigv4.matches(signature, SECRET, call, body + b"\n")
    assert not sigv4.matches(signature, SECRET, call, body[:-1])


def test_headers_that_proxies_add_do_not_matter() -> None:
    """What is not signed and has no say may be there."""
    call, body = signed("attributes")
    more = edited(edited(call, b"x-amzn-trace-id", b"Root=1"), b"x-forwarded-for", b"10.0.0.1")
    assert sigv4.matches(sigv4.read(more, moment(more)), SECRET, more, body)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda call: edited(call, b"authorization", b"AWS4-HMAC-SHA256"), "not a well-formed"),
        (lambda call: rewritten(call, "AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA512 "), "not a well-formed"),
        (lambda call: rewritten(call, "/aws4_request", "/aws5_request"), "not a well-formed"),
        (lambda call: rewritten(call, "/eu-west-1", ""), "not a well-formed"),
        (lambda call: rewritten(call, "AKIDEXAMPLE", ""), "not a well-formed"),
        (lambda call: rewritten(call, "accept;content-type;host", "host;accept;content-type"), "not a well-formed"),
        (lambda call: rewritten(call, "accept;", "accept;\x00;"), "not a well-formed"),
        (lambda call: rewritten(call, "Signature=", "Signature=0"), "not a well-formed"),
        (lambda call: rewritten(call, "Signature=", "Signatur="), "not a well-formed"),
        (lambda call: rewritten(call, "/sagemaker/", "/s3/"), "for the service 's3'"),
        (lambda call: edited(call, b"x-amz-date", None), "not that of the header X-Amz-Date"),
        (lambda call: edited(call, b"x-amz-date", b"20000101T000000Z"), "not that of the header X-Amz-Date"),
        (lambda call: rewritten(call, "content-type;host;", "content-type;"), "header host must be among"),
        (lambda call: rewritten(call, ";x-amz-date", ""), "header x-amz-date must be among"),
        (
            lambda call: edited(call, b"x-amzn-sagemaker-target-model", b"other"),
            "header x-amzn-sagemaker-target-model must be among",
        ),
    ],
)
def test_a_signature_that_cannot_be_right_is_refused_by_the_head(change: Callable[[Call], Call], text: str) -> None:
    """And the text says what is wrong with it."""
    call, _ = signed("plain")
    with pytest.raises(Unauthenticated, match=text):
        sigv4.read(change(call), moment(call))


def test_a_date_that_is_none_is_refused() -> None:
    """The thirteenth month is no server error."""
    call, _ = signed("plain")
    date = str(call.header(b"x-amz-date"))[:8]
    wrong = edited(rewritten(call, date, "20261399"), b"x-amz-date", b"20261399T000000Z")
    with pytest.raises(Unauthenticated, match="X-Amz-Date is not a date"):
        sigv4.read(wrong, moment(call))


@pytest.mark.parametrize("seconds", [-901, 901])
def test_an_old_or_early_signature_is_refused(seconds: int) -> None:
    """Fifteen minutes either way are allowed, no more."""
    call, body = signed("plain")
    with pytest.raises(Unauthenticated, match="more than 15 minutes"):
        sigv4.read(call, moment(call) + seconds)
    near = seconds - (1 if seconds > 0 else -1)
    assert sigv4.matches(sigv4.read(call, moment(call) + near), SECRET, call, body)


# As a service's key...


def service(secret: str = SECRET, **more: Any) -> ServiceConfig:
    """A protected service with the recorded credential, its secret in a file."""
    credential = AwsCredential("AKIDEXAMPLE", Secret(file=secret))
    return ServiceConfig(app_auth=True, aws_credentials=(credential,), **more)


def protected(name: str) -> Service:
    """A service that needs a key, as it is routed to."""
    return Service(name, name, "any", True, ())


@pytest.fixture
def authenticator(tmp_path: Path) -> Authenticator:
    """iris and digits are signed for with different secrets of one access key id, wine takes keys only."""
    (tmp_path / "iris").write_text(f"{SECRET}\n")
    (tmp_path / "digits").write_text("another")
    services = {
        "iris": service("iris", app_codes=("iris-code",)),
        "digits": service("digits"),
        "wine": ServiceConfig(app_auth=True, app_codes=("wine-code",)),
    }
    now = moment(signed("plain")[0])
    return Authenticator(services, tmp_path, clock=lambda: now)


def test_a_signature_counts_as_the_services_key(authenticator: Authenticator) -> None:
    """Before the body is here it may open what its access key id is listed for, then what its secret is for."""
    call, body = signed("plain")
    early = authenticator.opened(call)
    assert frozenset({"iris", "digits"}) == early.services
    authenticator.admit_any(call, early, [protected("iris")])
    opened = authenticator.verified(call, early, body)
    assert frozenset({"iris"}) == opened.services
    authenticator.admit(call, opened, protected("iris"))
    with pytest.raises(Forbidden):
        authenticator.admit(call, opened, protected("digits"))


def test_a_signature_of_other_bytes_opens_nothing(authenticator: Authenticator) -> None:
    """What was let in for its head is turned away once the body is here, with the reason."""
    call, body = signed("plain")
    opened = authenticator.verified(call, authenticator.opened(call), body + b"5")
    assert not opened
    with pytest.raises(Unauthenticated, match="does not match"):
        authenticator.admit(call, opened, protected("iris"))


def test_an_unknown_access_key_id_is_refused_by_the_head(authenticator: Authenticator) -> None:
    """No body is read for it."""
    call = rewritten(signed("plain")[0], "AKIDEXAMPLE", "AKIDOTHER")
    assert not authenticator.opened(call)
    with pytest.raises(Unauthenticated, match="access key id is not known"):
        authenticator.admit_any(call, frozenset(), [protected("iris")])


def test_a_key_beside_the_signature_counts_alone(authenticator: Authenticator) -> None:
    """The signature is then not looked at."""
    call, body = signed("plain")
    keyed = edited(call, b"x-tensorgate-key", b"wine-code")
    opened = authenticator.verified(keyed, authenticator.opened(keyed), body)
    assert frozenset({"wine"}) == opened.services
    wrong = edited(call, b"x-tensorgate-key", b"wrong")
    assert not authenticator.verified(wrong, authenticator.opened(wrong), body)


def test_a_key_needs_no_signature(authenticator: Authenticator) -> None:
    """Keys go on to work where credentials are configured too."""
    call = Call("POST", "/", headers=[(b"authorization", b"APPCODE iris-code")])
    assert frozenset({"iris"}) == authenticator.verified(call, authenticator.opened(call), b"").services


def test_without_credentials_signatures_are_not_looked_at() -> None:
    """The text says what to send instead."""
    authenticator = Authenticator({"wine": ServiceConfig(app_auth=True, app_codes=("wine-code",))}, Path())
    call, _ = signed("plain")
    assert not authenticator.verifies
    assert not authenticator.opened(call)
    with pytest.raises(Unauthenticated, match="'X-Tensorgate-Key: <key>' beside yours"):
        authenticator.admit(call, frozenset(), protected("wine"))


@pytest.mark.parametrize(
    ("credential", "text"),
    [
        (AwsCredential("", Secret(file="secret")), "must not be empty"),
        (AwsCredential("AKID", Secret(file="empty")), "must not be empty"),
        (AwsCredential("AKID"), r"aws_credentials\[0\].secret: give exactly one of env and file"),
        (AwsCredential("AKID", Secret(file="absent")), r"aws_credentials\[0\].secret: absent cannot be read"),
    ],
)
def test_credentials_that_could_verify_nothing_are_refused(
    credential: AwsCredential, text: str, tmp_path: Path
) -> None:
    """The gateway does not start, and says why."""
    (tmp_path / "secret").write_text("s")
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match=text):
        Authenticator({"s": ServiceConfig(app_auth=True, aws_credentials=(credential,))}, tmp_path)


def test_no_secret_stands_in_the_configuration() -> None:
    """A credential's secret is named by variable or file, never written."""
    assert {"env", "file"} == set(Secret.__struct_fields__)
