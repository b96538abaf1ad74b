"""predict beyond the recorded cases: which way a body takes, where a fault lies, and what base64 feeds."""

import json
from typing import Any

import numpy as np
import pytest

from adapters.tfserving import Config, create, predict
from gateway.errors import BodyTooLarge, GatewayError, InvalidTensor, RequestError, SignatureNotFound
from gateway.interfaces import DecodeLimits, Infer
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Signature,
    Tensor,
    TensorSpec,
)

X = TensorSpec("graph_x", "float32", (None, 2))
IMAGE = TensorSpec("x", "float32", (None, 2, 2, 3), "image")
LIMITS = DecodeLimits()


def model(*inputs: tuple[str, TensorSpec], outputs: dict[str, TensorSpec] | None = None) -> ModelMetadata:
    """A model with one signature over those inputs."""
    signature = Signature("serving_default", "predict", dict(inputs), outputs or {"y": X})
    return ModelMetadata("m", 1, "none", {"serving_default": signature})


def decode(body: str, metadata: ModelMetadata, limits: DecodeLimits = LIMITS) -> dict[str, Tensor]:
    """The tensors that a body makes."""
    return predict.decode(body.encode(), metadata, limits).inputs


def encode(outputs: dict[str, Any], wire: str, config: Config | None = None) -> bytes:
    """The answer's body."""
    operation = next(route for route in create(config or Config(), LIMITS).routes() if isinstance(route, Infer))
    tensors = {name: np.asarray(value) for name, value in outputs.items()}
    return operation.encode(InferenceResponse(tensors), InferenceRequest({}, wire=wire), Call("POST", "/")).body


# Which way...

FAST = [
    '{"instances": [[1, 2], [3, 4]]}',
    '{"inputs": [[1, 2], [3, 4]]}',
    '{"inputs": {"x": [[1, 2], [3, 4]]}}',
    '{"signature_name": "serving_default", "instances": [[1, 2], [3, 4]]}',
    '{"instances": [[1, 2], [3, 4]], "signature_name": ""}',
]


@pytest.mark.parametrize("rows", [1, 200])
@pytest.mark.parametrize("body", FAST)
def test_plain_numbers_go_the_fast_way(body: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rectangles of numbers never reach the exact parser, however many rows there are and whatever key comes first."""
    monkeypatch.setattr(predict, "parse_object", None)
    many = body.replace("[1, 2], [3, 4]", ", ".join(["[1, 2], [3, 4]"] * rows))
    assert decode(many, model(("x", X)))["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]] * rows


def test_several_inputs_go_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The column format's object of plain lists is read by simdjson too, integers exactly."""
    monkeypatch.setattr(predict, "parse_object", None)
    wide = TensorSpec("graph_n", "int64", None)
    rows = ", ".join(["[1]"] * 200)
    found = decode('{"inputs": {"n": [9007199254740993], "x": [%s]}}' % rows, model(("x", X), ("n", wide)))  # noqa: UP031
    assert found["n"].tolist() == [9007199254740993]
    assert found["x"].shape == (200, 1)


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [[1, 2], [3, 4]], "other": [5]}',
        '{"other": {"instances": [[9]]}, "instances": [[1, 2], [3, 4]]}',
        '{"instances": [[1, 2], [3, 4]], "instances": 7}',
        '{"instances": [[1, 2], [3, 4]], "signature_name": "", "signature_name": "x"}',
        '{"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}',
        '\ufeff{"instances": [[1, 2], [3, 4]]} and more',
    ],
)
def test_other_bodies_mean_the_same(body: str) -> None:
    """Unknown keys, duplicates, named rows and trailing bytes change nothing."""
    assert decode(body, model(("x", X)))["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_tensors_can_be_written_to() -> None:
    """A model may work in place: no tensor is a read-only view of the body."""
    for dtype in ("float64", "int64", "float32"):
        tensor = decode('{"inputs": [1, 2]}', model(("x", TensorSpec("x", dtype, None))))["x"]
        tensor += 1
        assert tensor.tolist() == [2, 3]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn"])
@pytest.mark.parametrize("value", ["[1.5]", "[1.5, NaN]"])
def test_narrow_floats_travel_as_float32(dtype: str, value: str) -> None:
    """Dtypes that numpy lacks are float32 arrays on both ways."""
    tensor = decode(f'{{"inputs": {value}}}', model(("x", TensorSpec("x", dtype, None))))["x"]
    assert tensor.dtype == np.float32
    assert tensor[0] == 1.5


# Where the fault lies...


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"instances": [[1, 2], [3, "4"]]}', '(input "x" float32 [-1,2], at instances[1][1])'),
        ('{"instances": [{"x": [1, 2]}, {"x": [3, null]}]}', '(input "x" float32 [-1,2], at instances[1].x[1])'),
        ('{"inputs": [[[1], [true]]]}', '(input "x" float32 [-1,2], at inputs[0][1][0])'),
        ('{"inputs": {"x": [1, "a"]}}', '(input "x" float32 [-1,2], at inputs.x[1])'),
        ('{"inputs": {"y": 1}}', 'expected inputs: "x" float32 [-1,2]'),
        ('{"instances": [{"y": 1}]}', 'expected inputs: "x" float32 [-1,2]'),
        ('{"instances": [[1, 2], [3]]}', "at instances[1]: shape [1], where instances[0] has [2]"),
        ('{"instances": [{"b64": "AA=="}]}', "b64 feeds string, uint8 and image inputs only"),
        ('{"signature_name": "s", "inputs": 1}', "there are: serving_default"),
    ],
)
def test_errors_help(body: str, told: str) -> None:
    """A refusal names the input as the signature calls it, what it takes, and the place in the body."""
    with pytest.raises((InvalidTensor, SignatureNotFound)) as caught:
        decode(body, model(("x", X)))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "value", "told"),
    [
        (IMAGE, '"iVBORw0KGgo="', 'an image is sent as {"b64": "..."}'),
        (IMAGE, '{"x": {"base64": "iVBORw0KGgo="}}', 'an image is sent as {"b64": "..."}'),
        (IMAGE, '{"b64": "data:image/png;base64,iVBORw0KGgo="}', "without 'data:...;base64,' before it"),
        (TensorSpec("x", "string", (None,)), '[{"role": "user"}]', '; expected a string, or bytes as {"b64": "..."}'),
    ],
)
def test_how_images_and_texts_are_sent_is_told(spec: TensorSpec, value: str, told: str) -> None:
    """Who forgets the b64 around an image, leaves a data URL's head in it, or sends an object for a text, learns it."""
    with pytest.raises(InvalidTensor) as caught:
        decode(f'{{"instances": [{value}]}}', model(("x", spec)))
    assert told in str(caught.value)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("at", [0, 1023, 1024, 5000])
def test_the_fault_among_many_instances_is_found(at: int, named: bool) -> None:
    """Its index is right wherever it lies."""
    rows = [f'{{"x": {n}}}' if named else str(n) for n in range(5001)]
    rows[at] = '{"x": "bad"}' if named else '"bad"'
    with pytest.raises(InvalidTensor, match=f'Failed to process element: {at} .*"bad"'):
        decode(f'{{"instances": [{",".join(rows)}]}}', model(("x", TensorSpec("x", "float32", None))))


@pytest.mark.parametrize("at", [0, 1023, 1024, 5000])
def test_the_fault_in_a_long_column_is_found(at: int) -> None:
    """Its index is right wherever it lies, in a list of lists too."""
    rows = ["[1, 2]"] * 5001
    rows[at] = "[1, 300]"
    with pytest.raises(InvalidTensor, match=rf"JSON Value: 300 .*\(0 to 255\).*at inputs\[{at}\]\[1\]"):
        decode(f'{{"inputs": [{",".join(rows)}]}}', model(("x", TensorSpec("x", "uint8", None))))


@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_deep_nesting_is_refused(key: str) -> None:
    """250,000 levels are one refusal, not a crash, and in no more time than 90,000."""
    for levels, reason in ((90_000, "tensor parsing error: x"), (250_000, "nested too deeply")):
        with pytest.raises(RequestError, match=reason):
            decode(f'{{"{key}": {"[" * levels}{"]" * levels}}}', model(("x", X)))


def test_nesting_limit_is_configurable() -> None:
    """The limit counts the lists of a tensor."""
    limits = DecodeLimits(depth=3)
    free = model(("x", TensorSpec("x", "string", None)))
    assert decode('{"inputs": [[["a"]]]}', free, limits)["x"].shape == (1, 1, 1)
    with pytest.raises(InvalidTensor, match="more than 3 deep"):
        decode('{"inputs": [[[["a"]]]]}', free, limits)


@pytest.mark.parametrize(
    "body", ['{"inputs": [1,2,3,4,5]}', '{"inputs": ["a","b","c","d","e"]}', '{"inputs": [1,2,3,4,NaN]}']
)
@pytest.mark.parametrize("dtype", ["float32", "string"])
def test_too_many_values_are_refused(body: str, dtype: str) -> None:
    """More values than the limit are too large, whichever way the body takes."""
    with pytest.raises(BodyTooLarge):
        decode(body, model(("x", TensorSpec("x", dtype, None))), DecodeLimits(elements=4))


def test_instances_may_be_one_level_too_deep() -> None:
    """Where every instance is in order, the list around them still counts."""
    with pytest.raises(InvalidTensor, match="instances are nested too deeply"):
        decode('{"instances": [["a"]]}', model(("x", TensorSpec("x", "string", None))), DecodeLimits(depth=1))


# Before the run...


def test_scalar_outputs_are_refused_before_the_run() -> None:
    """The row format has no place for an output without rows, and the signature tells so in time."""
    scalar = model(("x", X), outputs={"total": TensorSpec("t", "float32", ())})
    for body in ('{"instances": [[1, 2]]}', '{"instances": [{"x": [1, 2]}]}'):
        with pytest.raises(InvalidTensor, match=r"Tensor name: total has no shape information .*inputs"):
            decode(body, scalar)
    assert decode('{"inputs": [[1, 2]]}', scalar)["x"].shape == (1, 2)


def test_a_signature_without_inputs_can_be_called() -> None:
    """An empty `inputs` object gives everything that it takes."""
    assert decode('{"inputs": {}}', model()) == {}
    with pytest.raises(InvalidTensor, match="Failed to get input map for signature: DEFAULT"):
        decode('{"instances": [1]}', model())


# Base64...

BYTES = TensorSpec("x", "uint8", (None, 3))
IMAGE = TensorSpec("x", "float32", (None, 28, 28), media="image")


@pytest.mark.parametrize(
    ("body", "spec", "shape"),
    [
        ('{"instances": [{"b64": "AQID"}, {"b64": "BAUG"}]}', BYTES, (2, 3)),
        ('{"instances": [{"x": {"b64": "AQID"}}]}', BYTES, (1, 3)),
        ('{"inputs": {"b64": "AQID"}}', TensorSpec("x", "uint8", (None,)), (3,)),
        ('{"inputs": [{"b64": "AQIDBAUG"}]}', TensorSpec("x", "uint8", (None, 2, 3)), (1, 2, 3)),
        ('{"inputs": [{"b64": "AQIDBAUG"}]}', TensorSpec("x", "uint8", (None, 2, None)), (1, 6)),
        ('{"inputs": [{"b64": ""}]}', TensorSpec("x", "uint8", None), (1, 0)),
    ],
)
def test_base64_is_a_uint8_inputs_bytes(body: str, spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """Each encoded value is a vector, or has the shape that the signature leaves for it."""
    tensor = decode(body, model(("x", spec)))["x"]
    assert (tensor.dtype, tensor.shape) == (np.uint8, shape)
    assert tensor.ravel().tolist() == list(range(1, tensor.size + 1))


@pytest.mark.parametrize(
    ("body", "spec", "told"),
    [
        ('{"instances": [{"b64": "AQID"}, {"b64": "BA=="}]}', BYTES, "Expecting tensor size: 3 but got: 1"),
        ('{"inputs": [{"b64": "AQID"}, {"b64": "BA=="}]}', BYTES, "must all have the same length"),
        ('{"inputs": [{"b64": "AQID"}, 7]}', BYTES, "must all have the same length"),
        ('{"inputs": [{"b64": "AQI_"}]}', BYTES, "Unable to base64 decode, the standard alphabet"),
        ('{"inputs": [{"b64": "AQID"}, 7]}', IMAGE, "either base64 values or numbers, not both"),
        (
            '{"instances": [{"b64": "AQID"}, 7]}',
            IMAGE,
            "element: 1 of 'instances' list. Error: INVALID_ARGUMENT: an image",
        ),
        ('{"instances": [{"b64": "A"}]}', IMAGE, "Unable to base64 decode"),
    ],
)
def test_base64_that_does_not_fit_is_refused(body: str, spec: TensorSpec, told: str) -> None:
    """Values of different lengths, mixtures and wrong alphabets are told apart."""
    with pytest.raises(InvalidTensor) as caught:
        decode(body, model(("x", spec)))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "body",
    ['{"instances": [{"b64": "AQID"}]}', '{"inputs": {"b64": "AQID"}}', '{"instances": [{"x": {"b64": "AQID"}}]}'],
)
def test_base64_is_an_images_file(body: str) -> None:
    """An image input gets the encoded files, one a row."""
    tensor = decode(body, model(("x", IMAGE)))["x"]
    assert tensor.dtype == object
    assert tensor.tolist() == [b"\x01\x02\x03"]


def test_images_may_be_numbers() -> None:
    """An image input takes pixels like any other input."""
    rows = str([[0.5] * 28] * 28)
    assert decode(f'{{"instances": [{rows}]}}', model(("x", IMAGE)))["x"].shape == (1, 28, 28)


@pytest.mark.parametrize(
    ("text", "data"),
    [("aGk=", b"hi"), ("aGk", b"hi"), (" aG\\nk= ", b"hi"), ("", b""), ("+/8=", b"\xfb\xff")],
)
def test_base64_as_absl_reads_it(text: str, data: bytes) -> None:
    """Padding may be left out and whitespace is skipped."""
    strings = model(("x", TensorSpec("x", "string", None)))
    assert decode(f'{{"inputs": [{{"b64": "{text}"}}]}}', strings)["x"].tolist() == [data]


@pytest.mark.parametrize("text", ["aGk==", "a", "a===", "aG-k", "aGk=aGk=", "====", "é"])
def test_bad_base64_is_refused(text: str) -> None:
    """Other alphabets and wrong padding are not guessed at."""
    with pytest.raises(InvalidTensor, match="Unable to base64 decode"):
        decode(f'{{"inputs": [{{"b64": "{text}"}}]}}', model(("x", TensorSpec("x", "string", None))))


def test_strings_that_are_not_utf8_stay_bytes() -> None:
    """TF Serving's strings are bytes; those that are no text are passed on as they came."""
    metadata = model(("x", TensorSpec("x", "string", None)))
    assert predict.decode(b'{"inputs": ["a", "\xff"]}', metadata, LIMITS).inputs["x"].tolist() == ["a", b"\xff"]


# Out...


@pytest.mark.parametrize(
    ("config", "row", "column"),
    [
        (Config(), b'{"predictions":[NaN,1.0]}', b'{"outputs":[NaN,1.0]}'),
        (Config(non_finite="null"), b'{"predictions":[null,1.0]}', b'{"outputs":[null,1.0]}'),
        (Config(non_finite="string"), b'{"predictions":["NaN",1.0]}', b'{"outputs":["NaN",1.0]}'),
        (Config(named_outputs=True), b'{"predictions":[{"y":NaN},{"y":1.0}]}', b'{"outputs":{"y":[NaN,1.0]}}'),
    ],
)
def test_answers_can_be_configured(config: Config, row: bytes, column: bytes) -> None:
    """Strict readers get what they can read, and the only output may keep its name."""
    assert encode({"y": np.array([np.nan, 1], np.float32)}, "instances", config) == row
    assert encode({"y": np.array([np.nan, 1], np.float32)}, "inputs", config) == column


def test_integers_of_any_c_type_are_written() -> None:
    """ONNX Runtime's int64 is C's long long, which is another numpy type than int64's usual one."""
    outputs = {"a": np.array([1, 2], np.longlong), "b": np.array([[3], [4]], np.ulonglong)}
    assert encode(outputs, "instances") == b'{"predictions":[{"a":1,"b":[3]},{"a":2,"b":[4]}]}'


def test_rows_of_text_and_numbers() -> None:
    """Strings, base64 strings and numbers stand side by side in a row; infinite ones too."""
    outputs: dict[str, Any] = {"label": np.array(["null", "b"], object), "raw_bytes": np.array([b"\0", b"hi"], object)}
    first = b'{"predictions":[{"label":"null","raw_bytes":{"b64":"AA=="},"p":%b},'
    text = first + b'{"label":"b","raw_bytes":{"b64":"aGk="},"p":0.5}]}'
    assert encode(outputs | {"p": np.array([0.1, 0.5], np.float32)}, "instances") == text % b"0.1"
    assert encode(outputs | {"p": np.array([-np.inf, 0.5], np.float32)}, "instances") == text % b"-Infinity"


@pytest.mark.parametrize(
    ("outputs", "told"), [({"a": 1.0}, "a has no shape"), ({"a": [1], "b": [1, 2]}, "b has inconsistent")]
)
def test_rows_that_do_not_agree_are_refused(outputs: dict[str, Any], told: str) -> None:
    """What the signature did not tell is found after the run."""
    with pytest.raises(GatewayError, match=f"Tensor name: {told}"):
        encode(outputs, "instances")


# Whatever the values are...

ANY = TensorSpec("X", "any", None)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ("[[1, 2], [3, 4]]", "int64"),
        ("[[1, 2.5], [3, 4]]", "float64"),
        ("[1.0]", "float64"),
        ("[9223372036854775807]", "int64"),
        ("[9223372036854775808, 1]", "uint64"),
        ("[9223372036854775808, -1]", "object"),
        ("[36893488147419103232]", "object"),
        ("[true, false]", "bool"),
        ('["a", "b"]', "object"),
        ('["a", 1, 2.5, true]', "object"),
        ("[true, 1]", "object"),
    ],
)
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_values_say_their_own_dtype(values: str, dtype: str, key: str) -> None:
    """An input that takes anything gets integers, floats, booleans or texts as they were sent, none rounded."""
    tensor = decode(f'{{"{key}": {values}}}', model(("X", ANY)))["X"]
    assert (tensor.dtype, tensor.tolist()) == (np.dtype(dtype), json.loads(values))
    assert [type(item) for item in tensor.ravel().tolist()] == [
        float if dtype == "float64" else type(item) for item in np.array(json.loads(values), object).ravel()
    ]


def test_anything_takes_bytes() -> None:
    """base64 for an input that takes anything is bytes."""
    tensor = decode('{"instances": [{"b64": "AAH/"}, "text"]}', model(("X", ANY)))["X"]
    assert tensor.tolist() == [b"\x00\x01\xff", "text"]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('{"instances": [[1, 2], [null, 3]]}', "Null is not of expected type: any"),
        ('{"instances": [[1, 2], [3]]}', "Expecting tensor size: 2 but got: 1"),
        ('{"inputs": [[1], 2]}', "found at incorrect level: 2"),
    ],
)
def test_anything_is_still_a_tensor(body: str, fault: str) -> None:
    """Null and ragged lists are refused, and the error says where."""
    with pytest.raises(InvalidTensor, match=fault):
        decode(body, model(("X", ANY)))
