"""Every error in the dialect of either face."""

import json

import pytest
from sagemaker_calls import ADAPTER, call, headers_of
from test_errors import ERRORS, raised

from gateway import errors
from gateway.errors import GatewayError

# Errors...

RUNTIME = {
    "RouteNotFound": (404, "UnknownOperationException"),
    "MethodNotAllowed": (405, "UnknownOperationException"),
    "BodyTooLarge": (413, None),
    "BodyTimeout": (408, "RequestTimeoutException"),
    "ModelNotFound": (400, "ValidationError"),
    "LabelNotFound": (400, "ValidationError"),
    "Unauthenticated": (403, "MissingAuthenticationTokenException"),
    "Forbidden": (403, "AccessDeniedException"),
    "Overloaded": (503, "ServiceUnavailable"),
    "RateLimited": (429, "ThrottlingException"),
    "NotReady": (429, "ModelNotReadyException"),
    "ModelNotReady": (429, "ModelNotReadyException"),
    "ServiceStopped": (400, "ValidationError"),
    "ServiceExpired": (400, "ValidationError"),
    "ServiceFailed": (400, "ValidationError"),
}
"""Error class to status and name below /endpoints/; every other is a ModelError. The page has the same table."""


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_runtime_names_every_error(error: type[GatewayError]) -> None:
    """Each error has its status and name, and what is the model's is wrapped with the container's status in it."""
    reply = ADAPTER.encode_error(raised(error), call("POST", "/endpoints/m/invocations"))
    status, name = RUNTIME.get(error.__name__, (424, "ModelError"))
    assert (reply.status, headers_of(reply).get("x-amzn-errortype")) == (status, name)
    assert headers_of(reply)["x-amzn-requestid"] == "r-1"
    assert isinstance(reply.body, bytes)
    members = json.loads(reply.body)
    assert members.get("Message") or members["message"]
    if name == "ModelError":
        container = ADAPTER.encode_error(raised(error), call("POST", "/invocations"))
        assert members["OriginalStatusCode"] == (0 if error is errors.DeadlineExceeded else container.status)
        side = "client" if 400 <= container.status < 500 else "server"
        assert members["Message"].startswith(f"Received {side} error ({members['OriginalStatusCode']}) from primary ")


@pytest.mark.parametrize(
    ("headers", "name", "text"),
    [
        ({}, "MissingAuthenticationTokenException", "Missing Authentication Token"),
        ({"authorization": "AWS4-HMAC-SHA256 Credential=..."}, "InvalidSignatureException", "why not"),
        ({"authorization": "Bearer x"}, "UnrecognizedClientException", "why not"),
        ({"x_tensorgate_key": "x"}, "UnrecognizedClientException", "why not"),
    ],
)
def test_credentials_that_do_not_open(headers: dict[str, str], name: str, text: str) -> None:
    """None, a signature and a key have different names, under the key `message` as the front door of AWS has it."""
    reply = ADAPTER.encode_error(errors.Unauthenticated("why not"), call("POST", "/endpoints/m/invocations", **headers))
    assert (reply.status, headers_of(reply)["x-amzn-errortype"], reply.body) == (
        403,
        name,
        b'{"message":"%b"}' % text.encode(),
    )


def test_errors_are_one_line_of_ascii() -> None:
    """Whatever an error says fits into a header, and has an end."""
    error = errors.InvalidTensor("köln\n\n" + "x" * 5000)
    for path in ("/invocations", "/endpoints/m/invocations"):
        reply = ADAPTER.encode_error(error, call("POST", path))
        assert isinstance(reply.body, bytes)
        members = json.loads(reply.body)
        text = members.get("OriginalMessage") or members["message"]
        assert text.startswith("k\\xf6ln xxx")
        assert len(text) == 2048


def test_allowed_methods_and_challenge() -> None:
    """What HTTP asks for beside 405 and 401."""
    made = call("POST", "/invocations")
    refused = ADAPTER.encode_error(errors.MethodNotAllowed("no", ["POST"]), made)
    assert headers_of(refused) == {"allow": "POST"}
    challenge = ADAPTER.encode_error(errors.Unauthenticated("no"), made)
    assert headers_of(challenge)["www-authenticate"].startswith("APPCODE realm=")
