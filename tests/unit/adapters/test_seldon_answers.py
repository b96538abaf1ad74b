"""Answers: payloads, names and meta, as the configuration wants them."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from seldon_requests import graph, request, spec, user_class

from adapters.seldon import Config, create, errors
from gateway.errors import (
    InferenceFailed,
    UserError,
)
from gateway.interfaces import DecodeLimits, Infer
from gateway.paths import PathTable
from gateway.types import Call, InferenceResponse, ModelMetadata, Reply, ResponseForm, Tensor

CLASS = user_class("predict")
NDARRAY = '{"data": {"ndarray": [1]}}'
TENSOR = '{"data": {"tensor": {"shape": [1], "values": [1]}}}'
TFTENSOR = '{"data": {"tftensor": {"dtype": "DT_FLOAT", "floatVal": [1]}}}'
TEXT = '{"strData": "x"}'


def item(value: str | bytes) -> Tensor:
    """A text or bytes, as a class gives it."""
    array = np.empty((), object)
    array[()] = value
    return array


def reply(
    outputs: dict[str, Any],
    sent: str = NDARRAY,
    model: ModelMetadata = CLASS,
    config: Config | None = None,
    path: str = "/predict",
    **parameters: Any,
) -> Reply:
    """The answer of a model that gives those outputs and parameters."""
    asked = request(sent, model, path, config=config)
    adapter = create(config or Config(), DecodeLimits())
    operation = PathTable({"seldon": adapter}).find(Call("POST", path)).operation
    assert isinstance(operation, Infer)
    tensors = {name: value if isinstance(value, np.ndarray) else np.array(value) for name, value in outputs.items()}
    return operation.encode(InferenceResponse(tensors, parameters), asked, Call("POST", path, id="r-1"))


def text(*args: Any, **more: Any) -> bytes:
    """Its body."""
    body = reply(*args, **more).body
    assert isinstance(body, bytes)
    return body


def answer(*args: Any, **more: Any) -> Any:
    """Its body, read."""
    return json.loads(text(*args, **more))


# Payloads...


@pytest.mark.parametrize(
    ("sent", "given", "payload"),
    [
        (NDARRAY, [[1, 2]], {"names": ["t:0", "t:1"], "ndarray": [[1, 2]]}),
        (TENSOR, [[1, 2]], {"names": ["t:0", "t:1"], "tensor": {"shape": [1, 2], "values": [1, 2]}}),
        (TEXT, [1.5], {"names": [], "tensor": {"shape": [1], "values": [1.5]}}),
        (TEXT, 7, {"names": [], "tensor": {"shape": [], "values": [7]}}),
        (NDARRAY, 7, {"names": [], "ndarray": 7}),
        (TENSOR, [True], {"names": [], "ndarray": [True]}),
        (TENSOR, np.array(["a"], object), {"names": [], "ndarray": ["a"]}),
        (TEXT, np.array(["a"], object), {"names": [], "ndarray": ["a"]}),
        (TENSOR, np.array([None, {"a": b"b"}, b"\xff"], object), {"names": [], "ndarray": [None, {"a": "b"}, "/w=="]}),
        (TENSOR, np.array(["a"]), {"names": [], "ndarray": ["a"]}),
        (TENSOR, np.zeros((0, 2)), {"names": ["t:0", "t:1"], "tensor": {"shape": [0, 2], "values": []}}),
        (TFTENSOR, np.array([2], np.int8),
         {"names": [], "tftensor": {"dtype": "DT_INT8", "tensorShape": {"dim": [{"size": "1"}]}, "intVal": [2]}}),
    ],
)  # fmt: skip
def test_numbers_come_as_they_went(sent: str, given: Any, payload: dict[str, Any]) -> None:
    """In the request's encoding; what is not numbers always as ndarray."""
    assert answer({"Y": given}, sent) == {"data": payload, "meta": {}}


def test_texts_bytes_and_objects_have_members_of_their_own() -> None:
    """As Seldon's wrapper sorts them, whatever the request was."""
    assert answer({"Y": item("é")}) == {"strData": "é", "meta": {}}
    assert answer({"Y": item(b"\xff")}) == {"binData": base64.b64encode(b"\xff").decode(), "meta": {}}
    assert answer({}, json={"a": [1, None]}) == {"jsonData": {"a": [1, None]}, "meta": {}}


def test_model_that_declares_outputs_answers_one_text_with_one() -> None:
    """A text for a text, bytes for bytes; several are a list, and several outputs are an object."""
    model, texts = graph(x=spec("string", None)), np.array(["y"], object)
    assert answer({"y": texts}, TEXT, model) == {"strData": "y", "meta": {}}
    assert answer({"y": np.array([b"y"], object)}, TEXT, model) == {"strData": "y", "meta": {}}
    assert answer({"y": texts}, '{"data": {"ndarray": ["a"]}}', model)["data"]["ndarray"] == ["y"]
    assert answer({"y": np.array(["a", "b"], object)}, TEXT, model)["data"]["ndarray"] == ["a", "b"]
    assert answer({"y": np.array([b"\xff"], object)}, '{"binData": "eA=="}', model) == {"binData": "/w==", "meta": {}}
    two = answer({"a": np.array([1.5], np.float32), "b": texts}, TEXT, model)
    assert two == {"jsonData": {"a": [1.5], "b": ["y"]}, "meta": {}}


def test_float32_is_widened_unless_it_may_be_short() -> None:
    """Seldon writes the float64 that a float32 is."""
    given = {"Y": np.array([0.1], np.float32)}
    assert b"[0.10000000149011612]" in text(given)
    assert b"[0.1]" in text(given, config=Config(floats="short"))


def test_non_finite_numbers_are_written_as_configured() -> None:
    """NaN and infinities, in tensors and in objects, as Seldon's tokens or as null."""
    given, document = {"Y": np.array([np.nan, -np.inf])}, {"a": float("nan"), "b": None}
    assert b"[NaN,-Infinity]" in text(given)
    assert b"[null,null]" in text(given, config=Config(non_finite="null"))
    assert b'{"a":NaN,"b":null}' in text({}, json=document)
    assert b'{"a":null,"b":null}' in text({}, json=document, config=Config(non_finite="null"))


def test_ascii_switch() -> None:
    """UTF-8 by default; with the switch every character beyond ASCII is escaped, in answers and errors alike."""
    given = {"Y": item("é\u2028𝄞")}
    assert b'"plain"' in text({"Y": item("plain")}, config=Config(ascii_json=True))
    assert '"é\u2028𝄞"'.encode() in text(given)
    assert rb'"\u00e9\u2028\ud834\udd1e"' in text(given, config=Config(ascii_json=True))
    refusal = create(Config(ascii_json=True), DecodeLimits()).encode_error(UserError("é"), Call("GET", "/predict"))
    assert isinstance(refusal.body, bytes)
    assert rb"\u00e9" in refusal.body


@pytest.mark.parametrize(
    ("outputs", "parameters", "value"),
    [
        ({}, {"json": {"dclasses": ["c"]}}, {"dclasses": ["c"]}),
        ({"Y": [[1, 2]]}, {}, [[1, 2]]),
        ({"Y": np.array(["a"], object)}, {}, ["a"]),
        ({"Y": item("t")}, {}, "t"),
        ({"Y": item(b"\xff")}, {}, "/w=="),
        ({"a": [1], "b": [2.5]}, {}, {"a": [1], "b": [2.5]}),
    ],
)
def test_bare_answers(outputs: dict[str, Any], parameters: dict[str, Any], value: Any) -> None:
    """With bare_json, or where model.toml says so, the answer is what the model returned."""
    assert answer(outputs, config=Config(bare_json=True), **parameters) == value
    bare = ModelMetadata("m", 1, "x", CLASS.signatures, ResponseForm("bare"), CLASS.extras)
    assert answer(outputs, model=bare, **parameters) == value


def test_raw_answers_are_sent_as_they_are() -> None:
    """Also their status, which stands in status.code; one that cannot be sent is 200."""
    document = {"strData": "x", "status": {"code": 409}}
    raw = reply({}, raw=True, json=document)
    assert (raw.status, json.loads(raw.body)) == (409, document)
    assert answer({}, raw=True, json=[1]) == [1]
    for code in (0, 204, 700, "409", None, True):
        assert reply({}, raw=True, json={"status": {"code": code}}).status == 200


def test_model_sets_status_and_headers() -> None:
    """Both are the class's to choose, as far as HTTP allows."""
    found = reply({"Y": [1]}, status=201, headers={"X-A": "1"})
    assert (found.status, found.headers[0]) == (201, ("X-A", "1"))
    for name, value in (("Content-Length", "1"), ("X A", "1"), ("X-A", "a\r\nX-B: 1")):
        with pytest.raises(InferenceFailed, match="header that cannot be sent"):
            reply({"Y": [1]}, headers={name: value})


@pytest.mark.parametrize(
    "value",
    [{"a": [1 << 70, np.float32(0.5), np.array([1])]}, {"a": np.float32(0.5)}, {"a": np.array([1])}, {"a": "\ud800"}],
)
def test_unusual_values_are_written(value: Any) -> None:
    """Whole numbers of any size, numpy's own values and half surrogate pairs have their JSON."""
    assert answer({}, json=value)["jsonData"].keys() == {"a"}


def test_what_cannot_be_written_is_the_models_fault() -> None:
    """The error says which type it was."""
    with pytest.raises(InferenceFailed, match="type complex is not JSON serializable"):
        reply({}, json={"a": 1j})


# Names and meta...


def test_names_are_the_classs_own() -> None:
    """Whatever their number, but only for what has columns."""
    assert answer({"Y": [[1, 2]]}, names=["a"])["data"]["names"] == ["a"]
    assert answer({"Y": [1, 2]}, names=["a"])["data"]["names"] == []


METAS = (
    '{"strData": "x", "meta": {"puid": "p", "tags": {"a": 1, "b": 1}, "metrics": [{"own": 0}], "routing": {"r": 1}}}'
)
GAUGE = {"type": "GAUGE", "key": "k", "value": 1}


def test_meta_is_joined() -> None:
    """The request's, then the model's; routing is not repeated."""
    found = answer({"Y": item("t")}, METAS, tags={"b": 2}, metrics=[GAUGE])["meta"]
    assert found == {"puid": "p", "tags": {"a": 1, "b": 2}, "metrics": [{"own": 0}, GAUGE]}
    hidden = answer({"Y": item("t")}, METAS, metrics=[GAUGE], config=Config(own_metrics=False))["meta"]
    assert hidden["metrics"] == [{"own": 0}]
    changed = answer({"Y": item("t")}, METAS, meta={"puid": "q", "tags": {"z": 1}})["meta"]
    assert changed == {"puid": "q", "tags": {"z": 1}}


def test_route_keeps_only_puid() -> None:
    """What a class was given does not come back from there."""
    assert answer({"Y": [[1]]}, METAS, path="/route", meta={"tags": {"a": 1}})["meta"] == {"puid": "p"}


def test_aggregate_joins_the_messages_metas() -> None:
    """Tags of all, the last wins; metrics of all; the first one's puid and encoding."""
    messages = [
        {"data": {"ndarray": [1]}, "meta": {"puid": "1", "tags": {"a": 1}, "metrics": [{"m": 1}]}},
        {"data": {"tensor": {"shape": [1], "values": [1]}}, "meta": {"puid": "2", "tags": {"a": 2, "b": 2}}},
        {"strData": "x"},
    ]
    found = answer({"Y": [2]}, json.dumps(messages), path="/aggregate")
    assert found == {
        "data": {"names": [], "ndarray": [2]},
        "meta": {"puid": "1", "tags": {"a": 2, "b": 2}, "metrics": [{"m": 1}]},
    }


def test_request_path_names_what_answered() -> None:
    """The unit and image of the class's environment, or model and version if configured."""
    unit = user_class(environment={"PREDICTIVE_UNIT_ID": "u", "PREDICTIVE_UNIT_IMAGE": "i:1"})
    assert answer({"Y": [1]}, model=unit)["meta"] == {"requestPath": {"u": "i:1"}}
    nameless = user_class(environment={"PREDICTIVE_UNIT_ID": "u"})
    assert answer({"Y": [1]}, model=nameless)["meta"] == {"requestPath": {"u": "NOT_IMPLEMENTED:NOT_IMPLEMENTED"}}
    assert answer({"Y": [1]}, config=Config(request_path=True))["meta"] == {"requestPath": {"m": "1"}}


@pytest.mark.parametrize(
    "metrics",
    [[{}], {"type": "GAUGE"}, [{**GAUGE, "type": "X"}], [{**GAUGE, "value": "1"}], [{**GAUGE, "value": True}], [1j]],
)
def test_bad_metrics_are_the_models_fault(metrics: Any) -> None:
    """With Seldon's own reason."""
    with pytest.raises(errors.BadMetric, match="Bad metric created during request"):
        reply({"Y": [1]}, metrics=metrics)


def test_feedback_leaves_out_what_is_empty() -> None:
    """As protobuf does."""
    told = ('{"reward": 1}', CLASS, None, "/send-feedback")
    assert answer({"Y": np.empty(0)}, *told) == {"data": {"tensor": {"shape": [0]}}, "meta": {}}
    assert answer({"Y": [1]}, *told)["data"] == {"tensor": {"shape": [1], "values": [1]}}
