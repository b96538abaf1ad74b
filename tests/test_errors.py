"""Every error through every adapter: the matrix of docs/errors.md is what really happens."""

import inspect
import json
import re
from pathlib import Path

import pytest

from gateway import plugins
from gateway.errors import BackendError, CapacityError, GatewayError, ModelNotReady, RequestError
from gateway.interfaces import Adapter, DecodeLimits
from gateway.types import Call

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
CALL = Call("POST", "/v1/models/m:predict", {"model": "m"}, body=b"{}")
BASES = (GatewayError, RequestError, CapacityError, BackendError)
"""Never raised themselves."""


def _errors(kind: type[GatewayError] = GatewayError) -> list[type[GatewayError]]:
    """All classes that are raised, in the order in which the module defines them."""
    below = [error for child in kind.__subclasses__() for error in _errors(child)]
    return below if kind in BASES else [kind, *below]


ERRORS = [error for error in _errors() if error.__module__ == "gateway.errors"]
ADAPTERS = plugins.names("adapters")


def _adapter(name: str) -> Adapter:
    module = plugins.load("adapters", name, "create")
    adapter: Adapter = module.create(module.Config(), DecodeLimits())
    return adapter


def raised(kind: type[GatewayError]) -> GatewayError:
    """An instance whose required arguments are all the same harmless text."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    wanted = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return kind(*(["text"] * max(1, len(wanted))))


def _documented() -> dict[str, dict[str, int]]:
    """Class to adapter to status, as docs/errors.md says."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("|") and not line.startswith("|--")
    ]
    adapters = rows[0][2:]
    return {row[0].strip("`"): dict(zip(adapters, map(int, row[2:]), strict=True)) for row in rows[1:]}


def test_page_has_every_error_and_no_other() -> None:
    """docs/errors.md lists exactly the classes that can be raised."""
    assert list(_documented()) == [error.__name__ for error in ERRORS]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("name", ADAPTERS)
def test_status_is_as_documented(name: str, error: type[GatewayError]) -> None:
    """Each adapter answers each error with the status that the page gives."""
    assert _adapter(name).encode_error(raised(error), CALL).status == _documented()[error.__name__][name]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("name", ADAPTERS)
def test_blame_is_right(name: str, error: type[GatewayError]) -> None:
    """A client's mistake is a 4xx, the server's a 5xx, and what may be repeated one of the codes that say so.

    TF Serving alone calls a model that is still loading not found, and its clients wait for that to end.
    """
    status = _adapter(name).encode_error(raised(error), CALL).status
    if (name, error) == ("tfserving", ModelNotReady):
        assert status == 404
    elif issubclass(error, RequestError):
        assert 400 <= status < 500
    elif issubclass(error, CapacityError):
        assert status in (429, 503, 504, 507)
    else:
        assert 500 <= status < 600


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("name", ADAPTERS)
def test_body_is_of_the_declared_type(name: str, error: type[GatewayError]) -> None:
    """An error body that claims to be JSON is JSON, and no body shows how the server is built."""
    reply = _adapter(name).encode_error(raised(error), CALL)
    assert reply.body
    if reply.media_type == "application/json":
        assert isinstance(json.loads(reply.body), dict)
    assert not re.search(rb"Traceback|\.py\b|0x[0-9a-f]{6}", reply.body)


@pytest.mark.parametrize("name", ADAPTERS)
def test_unknown_error_is_the_servers_fault(name: str) -> None:
    """A class that an adapter's table does not know is answered as a 500, not by an exception."""

    class Novel(GatewayError):
        """New."""

    assert _adapter(name).encode_error(Novel("text"), CALL).status == 500


@pytest.mark.parametrize("seconds", [0.2, 7.0])
@pytest.mark.parametrize("error", [error for error in ERRORS if issubclass(error, CapacityError)])
@pytest.mark.parametrize("name", ADAPTERS)
def test_retry_after_is_whole_seconds(name: str, error: type[CapacityError], seconds: float) -> None:
    """Where it is known how long to wait, 429 and 503 say so in whole seconds, never 0."""
    reply = _adapter(name).encode_error(error("text", retry_after=seconds), CALL)
    if reply.status in (429, 503):
        headers = {name.lower(): value for name, value in reply.headers}
        assert headers["retry-after"] == str(max(1, round(seconds)))
