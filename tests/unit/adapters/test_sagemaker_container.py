"""What SageMaker asks of a container beside predictions: health, batch parameters, models that come and go."""

import json
from typing import Any

import pytest
from sagemaker_calls import call, operation

from adapters.sagemaker.errors import InvalidParameter
from gateway import errors
from gateway.interfaces import (
    ListModels,
    LoadModel,
    Manage,
    ManagedModel,
    UnloadModel,
)
from gateway.types import Call

# Models by call...


def command(made: Call) -> Any:
    """What the call orders."""
    found = operation(made)
    assert isinstance(found, Manage)
    return found.command(made)


def told(made: Call, *names: str) -> Any:
    """What the call is answered when the order was about those models."""
    models = [ManagedModel(name, f"/models/{name}") for name in names]
    reply = operation(made).encode(models, made)
    assert reply.status == 200
    return json.loads(reply.body)


def test_orders() -> None:
    """Load by body or query, unload and ask by path."""
    body = b'{"model_name": "a", "url": "/m/a"}'
    assert command(call("POST", "/models", body)) == LoadModel("a", "/m/a")
    assert command(call("POST", "/models", query="model_name=a&url=%2Fm%2Fa")) == LoadModel("a", "/m/a")
    assert command(call("DELETE", "/models/a%20b")) == UnloadModel("a b")
    assert command(call("GET", "/models/a%20b")) == ListModels("a b")
    assert command(call("GET", "/models")) == ListModels()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"model_name": "a"}', "url is missing, or is no text"),
        (b'{"url": "/m"}', "model_name is missing, or is no text"),
        (b'{"model_name": 1, "url": "/m"}', "model_name is missing, or is no text"),
        (b"", "model_name is missing, or is no text"),
        (b"[]", "expected a JSON object with model_name and url"),
        (b"[[1]]", "expected a JSON object with model_name and url"),
        (b"{oops", "expected a JSON object with model_name and url"),
    ],
)
def test_bad_orders(body: bytes, text: str) -> None:
    """What is missing is named."""
    with pytest.raises(errors.MalformedBody, match=text):
        command(call("POST", "/models", body))


def test_answers_to_orders() -> None:
    """What multi-model-server's clients read."""
    assert told(call("POST", "/models"), "a") == {"status": 'Model "a" loaded'}
    assert told(call("DELETE", "/models/a"), "a") == {"status": 'Model "a" unloaded'}
    assert told(call("GET", "/models/a"), "a") == {"modelName": "a", "modelUrl": "/models/a"}


@pytest.mark.parametrize(
    ("query", "names", "token"),
    [
        ("", ["a", "b", "c"], None),
        ("limit=2", ["a", "b"], "2"),
        ("limit=2&next_page_token=2", ["c"], None),
        ("limit=1000", ["a", "b", "c"], None),
        ("limit=0", ["a", "b", "c"], None),
        ("next_page_token=9", [], None),
    ],
)
def test_pages(query: str, names: list[str], token: str | None) -> None:
    """A page, and the token of the next if there is one."""
    page = told(call("GET", "/models", query=query), "a", "b", "c")
    assert [model["modelName"] for model in page["models"]] == names
    assert page.get("nextPageToken") == token


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "next_page_token=1e3"])
def test_pages_that_there_are_not(query: str) -> None:
    """A page is a number."""
    with pytest.raises(InvalidParameter, match="must be a number, got '"):
        command(call("GET", "/models", query=query))


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
def test_ping(ready: bool, status: int) -> None:
    """The status alone, without a body."""
    made = call("GET", "/ping")
    reply = operation(made).encode(ready, made)
    assert (reply.status, reply.body) == (status, b"")


def test_execution_parameters() -> None:
    """What is configured, under the names that the batch service reads."""
    made = call("GET", "/execution-parameters")
    assert json.loads(operation(made).reply(made).body) == {
        "MaxConcurrentTransforms": 1,
        "BatchStrategy": "MULTI_RECORD",
        "MaxPayloadInMB": 6,
    }
