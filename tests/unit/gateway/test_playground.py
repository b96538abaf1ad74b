"""What the online test's page is told of a service: which form suits it, where it is called, and its signatures."""

import json
from typing import Any

import pytest

from gateway.config import ServiceConfig
from gateway.console.playground import WORDS, context
from gateway.control.accounts import User
from gateway.control.views import view
from gateway.summary import VersionSummary
from gateway.types import Signature, TensorSpec

NUMBERS = Signature("serving_default", "predict", {"x": TensorSpec("x", "float32", (None, 4))}, {})
PICTURES = Signature("serving_default", "predict", {"x": TensorSpec("x", "float32", (None, 784), media="image")}, {})
FINDS = Signature(
    "serving_default", "predict", {"x": TensorSpec("x", "uint8", None)}, {"dclasses": TensorSpec("c", "string", None)}
)
ANYTHING = Signature("serving_default", "predict", {"X": TensorSpec("X", "any", None)}, {})


def told(signature: Signature | None = NUMBERS, task: str = "", **service: Any) -> dict[str, Any]:
    """What a page is told of a service called `a b` with such a model."""
    contracts = () if signature is None else (signature,)
    models = [
        VersionSummary("m", 1, "AVAILABLE", contracts=contracts, task=task),
        VersionSummary("m", 2, "LOADING"),
        VersionSummary("other", 9, "AVAILABLE", task="generate"),
    ]
    one = view("a b", ServiceConfig(model="m", **service), User("ada", "admin"), True, models)
    found: dict[str, Any] = json.loads(context(one, "http://h:1", 1000, str.upper))
    return found


@pytest.mark.parametrize(
    ("mode", "given"),
    [
        ("tensor", {}),
        ("image", {"signature": PICTURES}),
        ("image", {"signature": FINDS}),
        ("chat", {"task": "generate"}),
        ("paint", {"task": "text-to-image"}),
        ("chat", {"signature": None, "type": "openai"}),
        ("tensor", {"signature": None, "type": "custom"}),
    ],
)
def test_the_form(mode: str, given: dict[str, Any]) -> None:
    """It follows from the model's task, its inputs and outputs, or the service's protocol."""
    assert mode == told(**given)["service"]["mode"]


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("tfserving", {"signature": PICTURES}),
        ("seldon", {"signature": ANYTHING}),
        ("tfserving", {"signature": ANYTHING, "type": "tfserving"}),
        ("seldon", {"signature": PICTURES, "type": "seldon"}),
    ],
)
def test_how_a_picture_is_sent(form: str, given: dict[str, Any]) -> None:
    """As the service's protocol has it; else, users' classes take Seldon's way."""
    assert form == told(**given)["service"]["image_form"]


def test_the_rest() -> None:
    """Addresses are quoted, words are there in the chosen language, and signatures are whole."""
    page = told(app_auth=True)
    assert page["relay"] == "/control/v1/services/a%20b/test"
    assert page["data"] == "http://h:1/services/a%20b"
    assert page["service"]["needs_key"] is True
    assert page["words"] == {f"test.{key}": f"TEST.{key.upper()}" for key in WORDS}
    assert page["signatures"] == [
        {
            "name": "serving_default",
            "inputs": {"x": {"dtype": "float32", "shape": [None, 4], "media": ""}},
            "outputs": [],
        }
    ]
