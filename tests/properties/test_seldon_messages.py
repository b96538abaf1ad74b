"""Any bytes are a request or a refusal in Seldon's protocol, and both ways in read the same message."""

import json
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seldon_requests import decoded, graph, request, spec, user_class

from adapters.seldon import Config, create, fast
from adapters.seldon.documents import Writer, parse
from gateway.errors import RequestError
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import Call, InferenceResponse, Reply

LIMITS = DecodeLimits()
MODELS = (
    user_class("predict"),
    user_class("predict_raw"),
    graph(x=spec("float32", None, 2)),
    graph(x=spec("int64", None)),
    graph(x=spec("string", None)),
    graph(x=spec("uint8", None, 2)),
    graph(x=spec("float32", None, 1, 2, 2, media="image")),
    graph(a=spec("float32", None), b=spec("string", None, 1)),
)
PATHS = ("/predict", "/transform-input", "/send-feedback", "/aggregate")
TYPES = ("", "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=Q", "image/png")

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
numbers = st.integers(-(1 << 66), 1 << 66) | st.floats() | st.booleans()
grids = st.lists(st.lists(numbers | scalars, max_size=3), max_size=4)
tensors = st.fixed_dictionaries({"shape": st.lists(st.integers(-1, 3), max_size=3), "values": grids | values})
datas = st.fixed_dictionaries(
    {},
    optional={
        "names": st.lists(st.sampled_from(["a", "b", "["]), max_size=3) | values,
        "ndarray": grids | values,
        "tensor": tensors | values,
        "tftensor": values,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "data": datas | values,
        "jsonData": values | st.dictionaries(st.sampled_from(["a", "b", "x"]), grids, max_size=2),
        "strData": st.text(max_size=8) | values,
        "binData": st.sampled_from(["AQI=", "AQI", "?"]) | values,
        "meta": st.fixed_dictionaries({}, optional={"puid": values, "tags": values, "metrics": values}) | values,
    },
)
bodies = (messages | values | st.lists(messages, max_size=3)).map(lambda value: json.dumps(value).encode())


@settings(max_examples=150, deadline=None)
@given(
    body=bodies | st.binary(max_size=64),
    path=st.sampled_from(PATHS),
    model=st.sampled_from(MODELS),
    content_type=st.sampled_from(TYPES),
)
@example(b"--Q\r\nContent-Disposition: form-data; name=data\r\n\r\n{}\r\n--Q--", "/predict", MODELS[0], TYPES[3])
def test_any_body_is_a_request_or_a_refusal(body: bytes, path: str, model: Any, content_type: str) -> None:
    """Whatever comes, decoding ends in tensors, an answer or the client's mistake."""
    try:
        found = decoded(body, model, path, {"Content-Type": content_type} if content_type else {})
    except RequestError:
        return
    if isinstance(found, Reply):
        assert isinstance(found.body, bytes)
        assert isinstance(json.loads(found.body), dict)
        return
    assert all(isinstance(tensor, np.ndarray) and tensor.flags.c_contiguous for tensor in found.inputs.values())


ENCODE = next(one for one in create(Config(), LIMITS).routes() if isinstance(one, Infer)).encode


@settings(max_examples=150, deadline=None)
@given(message=messages)
def test_echo_is_readable(message: dict[str, Any]) -> None:
    """What a class gives back of what it was given is a message again, and JSON."""
    try:
        asked = request(json.dumps(message), MODELS[0])
    except RequestError:
        return
    outputs = {"Y": asked.inputs["X"]} if asked.inputs else {}
    response = InferenceResponse(outputs, {} if outputs else asked.parameters)
    body = ENCODE(response, asked, Call("POST", "/predict")).body
    assert isinstance(body, bytes)
    assert isinstance(json.loads(body), dict)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.lists(numbers, min_size=1, max_size=3), min_size=1, max_size=4), tensor=st.booleans())
def test_both_ways_agree(rows: list[list[Any]], tensor: bool) -> None:
    """Where the fast way takes a body, it reads exactly what the exact way does."""
    flat = [value for row in rows for value in row]
    data = {"tensor": {"shape": [len(flat)], "values": flat}} if tensor else {"ndarray": rows}
    body = json.dumps({"data": data})
    quick = fast.read_numbers(body.encode(), LIMITS, None)
    if quick is None:
        return
    slow = request(body, MODELS[0]).inputs["X"]
    assert (quick.array.dtype, quick.array.shape) == (slow.dtype, slow.shape)
    np.testing.assert_array_equal(quick.array, slow)


@given(value=values)
def test_values_come_back_as_they_went(value: Any) -> None:
    """JSON values survive reading and writing: whole numbers of any size, NaN, and any text."""
    written = Writer("token", ascii_only=False).dumps(value)
    assert repr(parse(written, LIMITS)) == repr(parse(json.dumps(value).encode(), LIMITS))
