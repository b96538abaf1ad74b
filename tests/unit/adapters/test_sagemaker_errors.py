"""The headers of SageMaker's errors."""

import pytest

from adapters._error_headers import CHALLENGE
from adapters.sagemaker.errors import encode
from gateway import errors
from gateway.errors import GatewayError
from gateway.types import Call

CONTAINER = Call("POST", "/invocations")
RUNTIME = Call("POST", "/endpoints/m/invocations", id="id-1")


@pytest.mark.parametrize("call", [CONTAINER, RUNTIME], ids=["container", "runtime"])
@pytest.mark.parametrize(
    ("error", "header"),
    [
        (errors.MethodNotAllowed("text", ["GET", "HEAD"]), ("Allow", "GET, HEAD")),
        (errors.Unauthenticated("text"), ("WWW-Authenticate", CHALLENGE)),
        (errors.RateLimited("text", 1.2), ("Retry-After", "2")),
        (errors.Overloaded("text", 0.01), ("Retry-After", "1")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_errors_carry_headers(call: Call, error: GatewayError, header: tuple[str, str]) -> None:
    """What HTTP asks for beside the status, on both kinds of paths."""
    assert header in encode(error, call).headers


def test_an_error_that_knows_no_wait_asks_for_none() -> None:
    """The container's paths add nothing of their own."""
    assert encode(errors.NotReady("text"), CONTAINER).headers == ()
