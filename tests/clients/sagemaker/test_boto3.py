"""boto3's sagemaker-runtime, unmodified, against a live gateway, and against every error that there is."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from clients.sagemaker.clients import failing_server, run
from live import LiveGateway

DISTANCE = pytest.approx(0.14136901)
KMEANS = {"predictions": [{"closest_cluster": 1.0, "distance_to_cluster": DISTANCE}]}

CALLS = ["plain", "bare", "text", "everything", "arn", "prefix", "from_environment", "stream", "defer"]
CALLS += ["signed", "missigned", "unknown", "variant", "target_model", "wide", "type", "accept"]

TRIES = {
    # error class -> name that boto3 sees, tries in standard mode, tries in legacy mode
    "ModelNotFound": ("ValidationError", 1, 1),
    "InvalidParameter": ("ValidationError", 1, 1),
    "UnsupportedMedia": ("ModelError", 1, 1),
    "RequestError": ("ModelError", 1, 1),
    "BackendError": ("ModelError", 1, 1),
    "DeadlineExceeded": ("ModelError", 1, 1),
    "OutOfMemory": ("ModelError", 1, 1),
    "BodyTooLarge": ("413", 1, 1),
    "Forbidden": ("AccessDeniedException", 1, 1),
    "Unauthenticated": ("InvalidSignatureException", 1, 1),
    "RouteNotFound": ("UnknownOperationException", 1, 1),
    "NotReady": ("ModelNotReadyException", 1, 5),
    "RateLimited": ("ThrottlingException", 3, 5),
    "Overloaded": ("ServiceUnavailable", 3, 5),
}


@pytest.fixture(scope="module")
def seen(live: LiveGateway) -> dict[str, Any]:
    """What boto3 made of each call."""
    results: dict[str, Any] = run("boto_calls.py", live.url, *CALLS)
    return results


@pytest.fixture(scope="module")
def failed() -> dict[str, Any]:
    """What boto3 made of each error."""
    names = [f"{name}:{mode}" for name in TRIES for mode in ("standard", "legacy")]
    with failing_server() as url:
        results: dict[str, Any] = run("boto_calls.py", url, *names, "broken_stream")
    return results


@pytest.mark.parametrize("name", ["plain", "bare", "text", "arn", "prefix", "from_environment"])
def test_invoke_endpoint(seen: dict[str, Any], name: str) -> None:
    """A call is answered, however the endpoint is addressed and whether or not the type is told."""
    answer = seen[name]
    assert json.loads(answer.pop("Body")) == KMEANS
    expected = {"ContentType": "application/json", "InvokedProductionVariant": "AllTraffic"}
    assert answer == expected | {"status": 200, "has_id": True}


def test_every_argument_is_taken(seen: dict[str, Any]) -> None:
    """No argument of the API disturbs; what only the model may set is not echoed."""
    answer = seen["everything"]
    assert json.loads(answer.pop("Body")) == KMEANS["predictions"][0]
    expected = {"ContentType": "application/jsonlines", "InvokedProductionVariant": "AllTraffic"}
    assert answer == expected | {"status": 200, "has_id": True}


def test_response_stream(seen: dict[str, Any]) -> None:
    """Each part is a whole record with its line feed."""
    answer = seen["stream"]
    assert answer["parts"] == ['{"x":[1.5]}\n', '{"x":[2.5]}\n']
    assert (answer["ContentType"], answer["InvokedProductionVariant"]) == ("application/jsonlines", "AllTraffic")


def test_broken_stream_is_an_exception(failed: dict[str, Any]) -> None:
    """What came before a failure is given, and the failure is not taken for an end."""
    assert failed["broken_stream"] == {
        "parts": ['{"token": "a"}\n'],
        "code": "ModelStreamError",
        "message": "backend failed",
    }


def test_async(seen: dict[str, Any]) -> None:
    """The answer lies where the call said that it would."""
    answer = seen["defer"]
    assert (answer["InferenceId"], answer["status"]) == ("mine", 202)
    assert answer["FailureLocation"].startswith("file://")
    path = Path(unquote(urlsplit(answer["OutputLocation"]).path))
    until = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert path.read_bytes().startswith(b"1.0,0.1413")


def test_signature_is_the_key(seen: dict[str, Any]) -> None:
    """A service with credentials answers whoever signs with them, and nobody else."""
    assert seen["signed"]["Body"].startswith("1.0,0.1413")
    refused = seen["missigned"]
    assert (refused["status"], refused["code"]) == (403, "InvalidSignatureException")


@pytest.mark.parametrize(
    ("name", "part"),
    [("unknown", "Endpoint ghost of account"), ("variant", "nope"), ("target_model", "not a multi-model endpoint")],
)
def test_validation_errors(seen: dict[str, Any], name: str, part: str) -> None:
    """What is wrong with the call itself is a ValidationError, tried once."""
    refused = seen[name]
    assert (refused["status"], refused["code"], refused["tries"]) == (400, "ValidationError", 1)
    assert part in refused["message"]


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("wide", 400, "row 1: expected 4 columns, got 3"),
        ("type", 415, "application/xml is not read here"),
        ("accept", 406, "'text/html' is not among the forms on offer"),
    ],
)
def test_model_errors(seen: dict[str, Any], name: str, status: int, text: str) -> None:
    """What the container refuses is a ModelError with all its members."""
    refused = seen[name]
    assert (refused["kind"], refused["code"], refused["status"]) == ("ModelError", "ModelError", 424)
    assert f'Received client error ({status}) from primary with message "' in refused["message"]
    members = refused["members"]
    assert members["OriginalStatusCode"] == status
    assert text in members["OriginalMessage"]
    assert members["LogStreamArn"].startswith("arn:aws:logs:")


@pytest.mark.parametrize("mode", ["standard", "legacy"])
@pytest.mark.parametrize("name", TRIES)
def test_errors_are_named_and_tried_as_meant(failed: dict[str, Any], name: str, mode: str) -> None:
    """Each error has its name, and is repeated only where repeating may help."""
    code, standard, legacy = TRIES[name]
    refused = failed[f"{name}:{mode}"]
    assert (refused["code"], refused["tries"]) == (code, standard if mode == "standard" else legacy)
    assert refused["message"]
