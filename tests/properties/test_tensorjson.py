"""The JSON codecs: what is written reads back as the same tensor, and the fast reader agrees with the exact one."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.strategies import DTYPES, FLOATS, json_values, nested_numbers, tensors

from adapters import _json, _lists, _tensorjson
from adapters.tfserving import Config, create
from gateway.errors import GatewayError, MalformedBody
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Signature,
    Target,
    Tensor,
    TensorSpec,
)

ADAPTER = create(Config(), DecodeLimits())
PREDICT = next(route for route in ADAPTER.routes() if isinstance(route, Infer))
CALL = Call("POST", "/v1/models/m:predict")
quick = settings(max_examples=100, deadline=None)


def _model(dtype: str, shape: tuple[int | None, ...] | None = None) -> ModelMetadata:
    spec = TensorSpec("x", dtype, shape)
    return ModelMetadata("m", 1, "none", {"serving_default": Signature("", "predict", {"x": spec}, {"x": spec})})


def _decode(body: bytes, model: ModelMetadata) -> Tensor:
    return PREDICT.decode(Call("POST", "/v1/models/m:predict", body=body), Target("m"), model).inputs["x"]


def assert_same(wanted: Tensor, found: Tensor) -> None:
    """Equal in dtype, shape and every value, the sign of zero included."""
    assert wanted.dtype == found.dtype
    assert wanted.shape == found.shape
    if wanted.dtype.kind == "f":
        assert np.array_equal(np.signbit(wanted) & ~np.isnan(wanted), np.signbit(found) & ~np.isnan(found))
        assert np.array_equal(wanted, found, equal_nan=True)
    else:
        assert wanted.tolist() == found.tolist()


def _trimmed(tensor: Tensor) -> Tensor:
    """JSON shows no more dimensions than up to the first of size 0."""
    if 0 not in tensor.shape:
        return tensor
    return tensor.reshape(tensor.shape[: tensor.shape.index(0) + 1])


@pytest.mark.parametrize("dtype", DTYPES)
@quick
@given(data=st.data())
def test_column_format_round_trips(dtype: str, data: st.DataObject) -> None:
    """A tensor answered as `outputs` and sent back as `inputs` is the same tensor."""
    tensor = data.draw(tensors(dtype))
    reply = PREDICT.encode(InferenceResponse({"x": tensor}), InferenceRequest({}, wire="inputs"), CALL)
    body = reply.body.replace(b'{"outputs":', b'{"inputs":', 1)
    assert_same(_trimmed(tensor), _decode(body, _model(dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@quick
@given(data=st.data())
def test_row_format_round_trips(dtype: str, data: st.DataObject) -> None:
    """A tensor answered as `predictions` and sent back as `instances` is the same tensor; no rows are refused."""
    tensor = data.draw(tensors(dtype, least_rank=1))
    reply = PREDICT.encode(InferenceResponse({"x": tensor}), InferenceRequest({}, wire="instances"), CALL)
    body = reply.body.replace(b'{"predictions":', b'{"instances":', 1)
    if len(tensor):
        assert_same(_trimmed(tensor), _decode(body, _model(dtype)))
    else:
        with pytest.raises(GatewayError, match="No values in 'instances' array"):
            _decode(body, _model(dtype))


@quick
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_rows_of_several_outputs_are_objects(data: st.DataObject, dtype: str) -> None:
    """Two outputs of the same rows are written as objects whose members are the rows, whatever the values."""
    first = data.draw(tensors(dtype, least_rank=1))
    second = data.draw(tensors("float32", least_rank=1).filter(lambda tensor: len(tensor) == len(first)))
    outputs = {"a": first, "b": second}
    reply = PREDICT.encode(InferenceResponse(outputs), InferenceRequest({}, wire="instances"), CALL)
    rows = json.loads(reply.body)["predictions"]
    assert len(rows) == len(first)
    for row, one, other in zip(rows, first, second, strict=True):
        assert repr(row["a"]) == repr(json.loads(_tensorjson.dump(np.asarray(one))))
        assert repr(row["b"]) == repr(json.loads(_tensorjson.dump(np.asarray(other))))


@pytest.mark.parametrize("dtype", FLOATS)
@quick
@given(data=st.data())
def test_null_and_string_forms_are_strict_json(dtype: str, data: st.DataObject) -> None:
    """With "null" and "string" a strict reader takes what is written, and finite values are the same as ever."""
    tensor = data.draw(tensors(dtype))

    def refuse(token: str) -> Any:
        raise AssertionError(token)

    tokens = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
    nulls = json.loads(_tensorjson.dump(tensor, "null"), parse_constant=refuse)
    strings = json.loads(_tensorjson.dump(tensor, "string"), parse_constant=refuse)
    flat = _lists.flatten(nulls, list(_trimmed(tensor).shape))
    quoted = _lists.flatten(strings, list(_trimmed(tensor).shape))
    assert flat is not None
    assert quoted is not None
    assert [value is None for value in flat] == (~np.isfinite(tensor.ravel())).tolist()
    read = np.array([tokens[value] if isinstance(value, str) else value for value in quoted], np.float64)
    assert_same(tensor.ravel(), read.astype(dtype))


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("bool", "string")])
@settings(max_examples=300, deadline=None)
@given(value=nested_numbers)
def test_fast_reader_agrees_with_the_exact_one(dtype: str, value: Any) -> None:
    """What simdjson makes of nested numbers, ragged or not, is what the exact reader makes of them, or nothing."""
    body = json.dumps({"inputs": value}).encode()
    spec = TensorSpec("x", dtype, None)

    def use(document: Any) -> Tensor | None:
        array = document["inputs"]
        tensor = _tensorjson.numbers(array, spec.numpy_dtype, body) if isinstance(value, list) else None
        text = partial(_skeleton_text, tensor)
        return tensor if tensor is not None and _tensorjson.is_rectangular(body, [tensor.shape], text) else None

    fast = _tensorjson.borrow(body, use)
    if fast is not None:
        shape = _lists.first_lengths(value)
        items = _lists.flatten(value, shape)
        assert items is not None
        exact = _lists.cast(items, spec)
        assert exact is not None
        assert_same(exact.reshape(shape), fast)


def _skeleton_text(tensor: Tensor) -> bytes:
    return b'{"inputs":' + _tensorjson.skeleton(tensor.shape) + b"}"


@settings(max_examples=300, deadline=None)
@given(lengths=st.lists(st.integers(0, 3), min_size=66, max_size=70), deep=st.booleans())
def test_skeleton_proves_many_rows(lengths: list[int], deep: bool) -> None:
    """With too many rows to measure, a list is taken as a rectangle exactly when it is one."""
    value: Any = [[1.5] * length for length in lengths]
    if deep:
        value[-1] = [[2.5]]
    body = json.dumps({"instances": value}).encode()
    shape = _lists.first_lengths(value)
    rectangle = _lists.flatten(value, shape) is not None and 0 not in shape
    try:
        tensor = _decode(body, _model("float32"))
    except GatewayError:
        tensor = None
    assert (tensor is not None) == (_lists.flatten(value, shape) is not None)
    if rectangle:
        assert tensor is not None
        assert tensor.tolist() == value


@settings(max_examples=300, deadline=None)
@given(value=json_values(), indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_both_json_readers_agree(value: Any, indent: int | None, ascii_only: bool) -> None:
    """The scanner and the machine both read what the standard library writes."""
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert repr(_json.parse(body)) == repr(value)
    assert repr(_json._read(body, 0)) == repr(value)


@settings(max_examples=300, deadline=None)
@given(
    value=json_values(), cut=st.integers(0, 60), put=st.sampled_from(["", ",", "]", "}", '"', "x", "-", "\\", "\x01"])
)
def test_the_scanner_takes_nothing_that_the_machine_refuses(value: Any, cut: int, put: str) -> None:
    """On damaged texts, the two readers accept the same ones with the same value."""
    text = json.dumps({"k": value})
    body = (text[:cut] + put + text[cut:]).encode()
    try:
        machine = repr(_json._read(body, 0))
    except MalformedBody as error:
        machine = str(error)
    try:
        found = repr(_json.parse(body))
    except MalformedBody as error:
        found = str(error)
    assert found == machine
