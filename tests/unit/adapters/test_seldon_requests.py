"""Calls to requests: where the message is, and what a user's class gets of it."""

import base64
import json
from typing import Any

import pytest
from seldon_requests import graph, request, spec, user_class, x

from adapters.seldon import Config, create
from adapters.seldon.messages import start_of
from adapters.seldon.requests import Decoder
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import Call, ModelMetadata

PNG = b"\x89PNG not really"
PNG_TEXT = base64.b64encode(PNG).decode()


# Where the message is...


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ('{"strData": "t"}', {}),
        ('{"strData": "t"}', {"headers": {"Content-Type": "application/json; charset=utf-8"}}),
        ('{"strData": "t"}', {"headers": {"Content-Type": "application/x-www-form-urlencoded"}}),
        ('{"strData": "t"}', {"headers": {"Content-Type": "text/plain"}}),
        ('{"strData": "t"}', {"headers": {"Content-Type": "application/octet-stream"}}),
        (b'\xef\xbb\xbf {"strData": "t"}', {}),
        ("a=1&json=%7B%22strData%22%3A+%22t%22%7D", {"headers": {"Content-Type": "application/x-www-form-urlencoded"}}),
        ("", {"path": "/predict?json=%7B%22strData%22%3A%22t%22%7D"}),
        ("--Q\r\nContent-Disposition: form-data; name=strData\r\n\r\nt\r\n--Q--\r\n",
         {"headers": {"Content-Type": "multipart/form-data; boundary=Q"}}),
    ],
)  # fmt: skip
def test_message_is_found(body: bytes | str, more: dict[str, Any]) -> None:
    """A message is read from every place where clients put it."""
    assert x(body, **more) == "t"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (PNG, "image/png"),
        (PNG, "application/octet-stream"),
        (json.dumps({"binData": PNG_TEXT}), "application/json"),
        (json.dumps({"binData": PNG_TEXT.rstrip("=")}), "application/json"),
        (b'--Q\r\nContent-Disposition: form-data; name=f; filename=""\r\n\r\n' + PNG + b"\r\n--Q--\r\n",
         "multipart/form-data; boundary=Q"),
        (b"--Q\r\nContent-Disposition: form-data; name=binData\r\n\r\n" + PNG_TEXT.encode() + b"\r\n--Q--\r\n",
         "multipart/form-data; boundary=Q"),
    ],
)  # fmt: skip
def test_bytes_are_found(body: bytes | str, content_type: str) -> None:
    """Bytes come as base64, as a file of any name, or as the whole body."""
    assert x(body, headers={"Content-Type": content_type}) == PNG


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("", "", "the body is empty"),
        ("strData", "text/plain", "Content-Type is 'text/plain'"),
        ("null", "application/json", "it is null"),
        ("{", "application/json", "Can't find JSON in data"),
        (b'{"strData": "\xff"}', "", "not UTF-8 at byte 13"),
        (r'{"strData": "\ud800"}', "", "half a surrogate"),
        ('{"jsonData": ' + "[" * 300 + "]" * 300 + "}", "", "nested more than"),
        ('{"jsonData": ' + "[" * 9000 + "]" * 9000 + "}", "", "nested too deeply"),
        ('{"jsonData": ' + "1" * 9000 + "}", "", "a number is too long"),
        ("[1]", "", "Invalid request data type"),
        ('{"data": null}', "", "data is no object"),
        ('{"data": {"names": "a"}}', "", "names is no list"),
        ('{"strData": 5}', "", "strData is no text"),
        ('{"binData": 5}', "", "binData is no text"),
        ('{"strData": "x", "meta": 5}', "", "meta is no object"),
        ('{"strData": "x", "meta": {"tags": []}}', "", "meta.tags is no object"),
        ('{"strData": "x", "meta": {"metrics": {}}}', "", "meta.metrics is no list"),
        ("--Q\r\nContent-Disposition: form-data; name=data\r\n\r\n{\r\n--Q--", "multipart/form-data; boundary=Q",
         "the part 'data' is no JSON"),
        (b"--Q\r\nContent-Disposition: form-data; name=strData\r\n\r\n\xff\r\n--Q--", "multipart/form-data; boundary=Q",
         "not UTF-8"),
        (2 * b"--Q\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\nx\r\n" + b"--Q--",
         "multipart/form-data; boundary=Q", "2 files"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(body: bytes | str, content_type: str, text: str) -> None:
    """The client's mistakes are told as such."""
    with pytest.raises(MalformedBody, match=text):
        x(body, headers={"Content-Type": content_type} if content_type else {})


def test_body_is_bounded() -> None:
    """A body of more values than the limit is refused before anything is built."""
    limits = DecodeLimits(elements=20)
    for message in ({"data": {"ndarray": [1] * 30}}, {"jsonData": [[]] * 9}, {"data": {"ndarray": [1] * 21}}):
        with pytest.raises(BodyTooLarge):
            x(json.dumps(message), limits=limits)


# What a class gets...


@pytest.mark.parametrize(
    ("data", "dtype", "values"),
    [
        ({"ndarray": [[1, 2]]}, "int64", [[1, 2]]),
        ({"ndarray": [[1, 2.5]]}, "float64", [[1.0, 2.5]]),
        ({"ndarray": [True, False]}, "bool", [True, False]),
        ({"ndarray": [True, 2]}, "int64", [1, 2]),
        ({"ndarray": []}, "float64", []),
        ({"ndarray": [[], []]}, "float64", [[], []]),
        ({"ndarray": [1 << 63]}, "uint64", [1 << 63]),
        ({"ndarray": [1 << 63, -1]}, "object", [1 << 63, -1]),
        ({"ndarray": [1 << 64]}, "object", [1 << 64]),
        ({"ndarray": ["a", "b"]}, "object", ["a", "b"]),
        ({"ndarray": [["a", 1], [2.5, True]]}, "object", [["a", "1"], ["2.5", "True"]]),
        ({"ndarray": ["a", None]}, "object", ["a", None]),
        ({"ndarray": [{"a": 1}]}, "object", [{"a": 1}]),
        ({"ndarray": "a"}, "object", "a"),
        ({"tensor": {"shape": [2, -1], "values": [1, 2, 3, 4]}}, "int64", [[1, 2], [3, 4]]),
        ({"tensor": {"shape": 2, "values": [1, 2]}}, "int64", [1, 2]),
        ({"tensor": {"shape": [], "values": [1]}}, "int64", 1),
        ({"tensor": {"shape": [1.0], "values": [1]}}, "int64", [1]),
        ({"tftensor": {"dtype": "DT_INT8", "tensorShape": {"dim": [{"size": "1"}]}, "intVal": [5]}}, "int8", [5]),
        ({}, "float64", []),
    ],
)  # fmt: skip
def test_class_gets_numpys_array(data: dict[str, Any], dtype: str, values: Any) -> None:
    """Dtypes and shapes are those that numpy infers, but numbers are never rounded for it."""
    tensor = request(json.dumps({"data": data}), user_class("predict")).inputs["X"]
    assert (tensor.dtype, tensor.tolist()) == (dtype, values)


def test_mixed_rows_may_stay_as_they_are() -> None:
    """With `mixed`, texts among numbers do not make texts of all."""
    body = '{"data": {"ndarray": [["a", 1]]}}'
    assert x(body, config=Config(mixed="object")) == [["a", 1]]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"ndarray": [[1], [1, 2]]}, "inhomogeneous"),
        ({"ndarray": [1, [2]]}, "inhomogeneous"),
        ({"ndarray": json.loads("[" * 65 + "]" * 65)}, "at most 64 deep"),
        ({"tensor": {"values": [1]}}, "shape and values"),
        ({"tensor": [1]}, "shape and values"),
        ({"tensor": {"shape": [3], "values": [1, 2]}}, r"cannot reshape array of size 2 into shape \[3\]"),
        ({"tensor": {"shape": ["a"], "values": [1]}}, "no list of whole numbers"),
        ({"tensor": {"shape": [-2], "values": [1]}}, "no list of whole numbers"),
        ({"tensor": {"shape": [1.5], "values": [1]}}, "no list of whole numbers"),
        ({"tftensor": {}}, "dtype"),
    ],
)
def test_what_is_no_array_is_refused(data: dict[str, Any], text: str) -> None:
    """A class never sees half of what was sent."""
    with pytest.raises(InvalidTensor, match=text):
        x(json.dumps({"data": data}))


def test_junk_in_base64_is_refused() -> None:
    """Bytes are never changed without a word."""
    with pytest.raises(InvalidTensor, match="binData is no base64"):
        x('{"binData": "a-_b"}')


def test_class_gets_what_else_it_asks_for() -> None:
    """Names, meta and, if it takes them, the headers, the request's id among them."""
    body = '{"data": {"names": ["a"], "ndarray": [1]}, "meta": {"puid": "p", "tags": {"t": 1}}}'
    plain = request(body, user_class("predict")).parameters
    assert plain == {"names": ["a"], "meta": {"puid": "p", "tags": {"t": 1}}}
    told = request(body, user_class("predict", "headers"), headers={"X-A": "1", "Seldon-Puid": "mine"}).parameters
    assert told["headers"] == {"x-a": "1", "seldon-puid": "mine"}


def test_raw_class_gets_the_message_itself() -> None:
    """predict_raw is given whatever was sent, also what carries no payload at all."""
    raw = user_class("predict_raw")
    assert request('{"foo": 1}', raw).parameters["message"] == {"foo": 1}
    assert request("[1]", raw).parameters["message"] == [1]
    sent = request(PNG, raw, headers={"Content-Type": "image/png"})
    assert sent.parameters["message"] == {"binData": PNG_TEXT}
    assert sent.inputs["X"].item() == PNG


def test_methods_have_signatures_of_their_own() -> None:
    """The graph's methods call the class's method of that name."""
    names = {
        path: request('{"data": {"ndarray": [1]}}', user_class(), path).signature
        for path in ("/transform-input", "/transform-output", "/route")
    }
    assert names == {"/transform-input": "transform_input", "/transform-output": "transform_output", "/route": "route"}


def test_aggregate_gets_all_messages() -> None:
    """Each message is an input; names and metas go beside them."""
    body = {"seldonMessages": [{"data": {"names": ["a"], "ndarray": [1]}}, {"strData": "x", "meta": {"puid": "p"}}]}
    found = request(json.dumps(body), user_class(), "/aggregate")
    assert {name: tensor.tolist() for name, tensor in found.inputs.items()} == {"X0": [1], "X1": "x"}
    assert found.parameters == {"names_list": [["a"], []], "metas": [None, {"puid": "p"}]}
    values = request('[{"jsonData": 1}, {"jsonData": [2]}]', user_class(), "/aggregate")
    assert (values.inputs, values.parameters["json_list"]) == ({}, [1, [2]])


@pytest.mark.parametrize("body", ["[]", "{}", '{"seldonMessages": 5}', "[5]", '[{"jsonData": 1}, {"strData": "x"}]'])
def test_bad_aggregates_are_refused(body: str) -> None:
    """What is no list of messages, or of messages that do not go together, is the client's mistake."""
    with pytest.raises((MalformedBody, InvalidTensor)):
        request(body, user_class(), "/aggregate")


def test_messages_are_bounded() -> None:
    """A body of very many messages is refused."""
    with pytest.raises(BodyTooLarge, match="1001 messages"):
        request(json.dumps([{"strData": ""}] * 1001), user_class(), "/aggregate")


# Feedback...


def test_feedback_is_read() -> None:
    """Features, truth, reward and the unit's own routing reach the class."""
    body = {
        "request": {"data": {"names": ["a"], "ndarray": [["x", 1]]}},
        "response": {"meta": {"routing": {"0": 1, "u": 2}}},
        "reward": "0.5",
        "truth": {"data": {"tensor": {"shape": [1], "values": [3]}}},
    }
    found = request(json.dumps(body), user_class(), "/send-feedback")
    assert {name: tensor.tolist() for name, tensor in found.inputs.items()} == {"X": [["x", "1"]], "truth": [3]}
    assert (found.parameters["names"], found.parameters["routing"]) == (["a"], 1)
    assert found.parameters["feedback"]["reward"] == 0.5
    unit = user_class(environment={"PREDICTIVE_UNIT_ID": "u"})
    assert request(json.dumps(body), unit, "/send-feedback").parameters["routing"] == 2


@pytest.mark.parametrize(
    "body",
    [
        {"nope": 1},
        [],
        {"reward": "x"},
        {"reward": True},
        {"reward": "nan"},
        {"request": 5},
        {"request": {"nope": 1}},
        {"request": {"data": {"nope": 1}}},
        {"truth": {"data": {"ndarray": 5}}},
        {"response": {"meta": {"nope": 1}}},
        {"response": {"meta": {"routing": []}}},
    ],
)
def test_feedback_is_checked_strictly(body: Any) -> None:
    """As protobuf does: unknown fields and wrong types are refused."""
    with pytest.raises(MalformedBody, match="Invalid JSON"):
        request(json.dumps(body), user_class(), "/send-feedback")


def test_feedback_without_data_carries_none() -> None:
    """Payloads that are no data, and null, are left out."""
    body = {"request": {"strData": "x", "data": None}, "truth": None, "reward": None}
    assert request(json.dumps(body), user_class(), "/send-feedback").inputs == {}


# What takes no thread...

NUMBERS = '{"data": {"ndarray": [' + ",".join(["[1.5, 2, 3, 4]"] * 100) + "]}}"


@pytest.mark.parametrize("model", [user_class("predict"), graph(x=spec("float32", None, 4))])
def test_numbers_are_read_at_once(model: ModelMetadata) -> None:
    """A message of numbers is read quickly, as the exact way reads it."""
    decoder = Decoder(DecodeLimits())
    quick = decoder.predict_quickly(Call("POST", "/predict", body=NUMBERS.encode()), model)
    exact = request(NUMBERS, model)
    assert quick is not None
    [tensor], [wanted] = quick.inputs.values(), exact.inputs.values()
    assert (wanted.tolist(), wanted.dtype) == (tensor.tolist(), tensor.dtype)
    assert exact.wire == quick.wire


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ('{"strData": "' + "a" * 2000 + '"}', user_class("predict")),
        ('{"data": {"ndarray": ["a"' + ',"a"' * 1000 + "]}}", user_class("predict")),
        ('{"jsonData": [1' + ",1" * 1000 + "]}", graph(x=spec("float32", None))),
        (NUMBERS, user_class("predict", "predict_raw")),
        (NUMBERS, graph(x=spec("float32", None, 4), z=spec("float32", None, 4))),
        (NUMBERS, graph(x=spec("string", None))),
    ],
)
def test_other_messages_are_not_read_at_once(body: str, model: ModelMetadata) -> None:
    """Whatever could take long is left to the exact way, and to a thread."""
    assert Decoder(DecodeLimits()).predict_quickly(Call("POST", "/predict", body=body.encode()), model) is None


def test_every_way_in_has_a_quick_one() -> None:
    """No path reads a large body on the event loop without asking whether it is quick."""
    operations = [one for one in create(Config(), DecodeLimits()).routes() if isinstance(one, Infer)]
    assert [one.path for one in operations if one.decode_quickly is None] == []


@pytest.mark.parametrize(
    "value",
    [{}, [], "it's", {"a": [1, 2.5, None, True], "b": {"c": "d" * 300}}, [[[]]] * 200, {str(n): n for n in range(99)}],
)
def test_a_message_is_shown_as_python_writes_it(value: Any) -> None:
    """What an error repeats of a message is the beginning of its repr."""
    assert start_of(value, 200) == repr(value)[:200]


def test_only_what_is_shown_is_written() -> None:
    """Of values nested as deeply as may be, and of many, no more is looked at than 200 characters."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert start_of([deep] * 1_000_000, 200) == "[" * 200


@pytest.mark.parametrize("shift", range(4))
def test_a_long_form_is_read_whole(shift: int) -> None:
    """Escapes stay whole wherever the windows end in which a long form is read."""
    text = "a" * shift + "%41" * 100_000
    body = f"json=%7B%22strData%22%3A%22{text}%22%7D"
    assert x(body, headers={"Content-Type": "application/x-www-form-urlencoded"}) == "a" * shift + "A" * 100_000
