"""classify and regress beyond the recorded cases: features to tensors, which signatures may be called, answers."""

from typing import Any

import numpy as np
import pytest

from adapters.tfserving import Config, create
from gateway.errors import BodyTooLarge, GatewayError, InvalidTensor, SignatureNotFound
from gateway.interfaces import Adapter, DecodeLimits, Infer
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    Method,
    ModelMetadata,
    Signature,
    Target,
    Tensor,
    TensorSpec,
)

SCORES = TensorSpec("s", "float32", (None, None))


def _operation(verb: str, adapter: Adapter | None = None) -> Infer:
    routes = (adapter or create(Config(), DecodeLimits())).routes()
    return next(route for route in routes if isinstance(route, Infer) and route.path.endswith(f":{verb}"))


def model(method: Method = "classify", outputs: tuple[str, ...] = ("scores",), **inputs: TensorSpec) -> ModelMetadata:
    """A model with one signature."""
    signature = Signature("serving_default", method, inputs, dict.fromkeys(outputs, SCORES))
    return ModelMetadata("m", 1, "none", {"serving_default": signature})


def request(
    body: str, metadata: ModelMetadata, verb: str = "classify", limits: DecodeLimits | None = None
) -> InferenceRequest:
    """What a body asks for."""
    operation = _operation(verb, create(Config(), limits or DecodeLimits()))
    return operation.decode(Call("POST", f"/v1/models/m:{verb}", body=body.encode()), Target("m"), metadata)


def feature(values: str, spec: TensorSpec) -> Tensor:
    """The tensor that two examples with those values make."""
    return request(f'{{"examples": [{{"x": {values}}}, {{"x": {values}}}]}}', model(x=spec)).inputs["x"]


def spec(dtype: str, *shape: int | None, media: str = "") -> TensorSpec:
    """An input called something else in its graph."""
    return TensorSpec("graph_x", dtype, shape, media)


@pytest.mark.parametrize(
    ("values", "declared", "shape"),
    [
        ("1.5", spec("float32", None), (2,)),
        ("[1.5]", spec("float32", None, 1), (2, 1)),
        ("[1, 2.5]", spec("float64", None, 2), (2, 2)),
        ("[1, 2, 3]", spec("float16", None, None), (2, 3)),
        ("[1, 2, 3, 4]", spec("int64", None, 2, 2), (2, 2, 2)),
        ("[1, 2, 3, 4]", spec("uint8", None, None, 2), (2, 2, 2)),
        ("[1, 2]", TensorSpec("x", "int32", None), (2, 2)),
        ("[true, false]", spec("int64", None, 2), (2, 2)),
        ("[true, 0]", spec("bool", None, 2), (2, 2)),
        ('["a", {"b64": "YQ=="}]', spec("string", None, 2), (2, 2)),
        ('{"b64": "AQID"}', spec("uint8", None, 3), (2, 3)),
        ('{"b64": "AQIDBA=="}', spec("uint8", None, 2, 2), (2, 2, 2)),
        ('{"b64": "AQID"}', spec("float32", None, 28, 28, media="image"), (2,)),
        (str([0.5] * 6), spec("float32", None, 2, 3, media="image"), (2, 2, 3)),
    ],
)
def test_features_take_the_inputs_shape(values: str, declared: TensorSpec, shape: tuple[int, ...]) -> None:
    """A scalar or flat list fills what the signature declares behind the first dimension."""
    tensor = feature(values, declared)
    assert tensor.shape == shape
    assert tensor.dtype in (declared.numpy_dtype, object)


def test_bools_are_integers_and_back() -> None:
    """true is 1 for an integer input, and 1 is true for a bool input."""
    assert feature("[true, 0]", spec("int64", None, 2)).tolist() == [[1, 0]] * 2
    assert feature("[true, 0]", spec("bool", None, 2)).tolist() == [[True, False]] * 2


@pytest.mark.parametrize(
    ("values", "declared", "told"),
    [
        ("1.5", spec("int64", None), "Data type: float but expected type: int64"),
        ("true", spec("float32", None), "Data type: int64 but expected type: float"),
        ('"a"', spec("float32", None), "Data type: string but expected type: float"),
        ("1", spec("string", None), "Data type: int64 but expected type: string"),
        ("300", spec("uint8", None), "JSON Value: 300 Type: Number is not of expected type: uint8 (0 to 255)"),
        ("[0, 300]", spec("uint8", None, 2), "at examples[0].x[1])"),
        ("2", spec("bool", None), "JSON Value: 2 Type: Number is not of expected type: bool"),
        ("18446744073709551616", spec("int64", None), "Data type: float but expected type: int64"),
        ("[1, 2]", spec("float32", None), "values size: 2 but output shape: [1]"),
        ("[1, 2, 3]", spec("float32", None, 2, None), "values size: 3 but output shape: [2]"),
        ("1", spec("float32"), "use :predict"),
        ("[1, 2]", spec("float32", None, None, None), "use :predict"),
        ('[1.5, "a"]', spec("float32", None, 2), "Unexpected element type in feature: x expecting type: float"),
        ('[{"b64": "AQID"}, 1]', spec("float32", None, 2), "expecting type: bytes"),
        ('{"b64": "!"}', spec("string", None), "Unable to base64 decode (feature x)"),
        ('"text"', spec("float32", None, 2, media="image"), "Index: 0."),
    ],
)
def test_features_that_do_not_fit_are_refused(values: str, declared: TensorSpec, told: str) -> None:
    """TensorFlow's words for what an example parser would find, and the place."""
    with pytest.raises(InvalidTensor) as caught:
        feature(values, declared)
    assert told in str(caught.value)


def test_examples_must_be_of_one_length() -> None:
    """The first example's length holds where the signature leaves it open."""
    with pytest.raises(InvalidTensor, match=r"Key: x, Index: 1\..*values size: 1 but output shape: \[2\]"):
        request('{"examples": [{"x": [1, 2]}, {"x": 3}]}', model(x=spec("float32", None, None)))


def test_limits_hold_for_examples() -> None:
    """More values than the limit are too large."""
    with pytest.raises(BodyTooLarge):
        request(
            '{"examples": [{"x": [1, 2]}, {"x": [1, 2]}]}',
            model(x=spec("float32", None, 2)),
            limits=DecodeLimits(elements=3),
        )


# Signatures...


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        (("a", "b", "c"), "Expected one or two output Tensors, found 3"),
        (("y",), 'at least one of "classes" or "scores". Signature was: y'),
    ],
)
def test_classify_needs_classes_or_scores(outputs: tuple[str, ...], told: str) -> None:
    """A signature that cannot classify is refused before anything runs."""
    with pytest.raises(InvalidTensor) as caught:
        request('{"examples": [{"x": 1}]}', model("predict", outputs, x=spec("float32", None)))
    assert told in str(caught.value)


def test_classify_asks_for_its_outputs_only() -> None:
    """Outputs by other names are not even computed."""
    found = request('{"examples": [{"x": 1}]}', model("predict", ("scores", "other"), x=spec("float32", None)))
    assert found.outputs == ("scores",)


def test_regress_needs_one_output() -> None:
    """A signature with two outputs cannot regress."""
    with pytest.raises(InvalidTensor, match=r"Expected one output Tensor\."):
        request('{"examples": [{"x": 1}]}', model("predict", ("a", "b"), x=spec("float32", None)), "regress")


@pytest.mark.parametrize("verb", ["classify", "regress"])
def test_unknown_signature_is_named(verb: str) -> None:
    """The refusal lists what there is."""
    with pytest.raises(SignatureNotFound, match="No signature was found with the name: s; there are: serving_default"):
        request('{"signature_name": "s", "examples": [{"x": 1}]}', model(x=spec("float32", None)), verb)


# Answers...


def answer(verb: str, outputs: dict[str, Any], config: Config | None = None, examples: int = 2) -> bytes:
    """The answer's body."""
    operation = _operation(verb, create(config or Config(), DecodeLimits()))
    response = InferenceResponse({name: np.asarray(value) for name, value in outputs.items()})
    return operation.encode(response, InferenceRequest({}, wire=examples), Call("POST", "/")).body


LABELS = np.array([["null", "b"], ["c", "d"]], object)


def test_classifications_with_infinite_scores() -> None:
    """Scores that are not finite are written as tokens beside any label."""
    scores = np.array([[np.nan, 0.1], [np.inf, -np.inf]], np.float32)
    tokens = b'{"results":[[["null",NaN],["b",0.1]],[["c",Infinity],["d",-Infinity]]]}'
    assert answer("classify", {"classes": LABELS, "scores": scores}) == tokens
    nulls = b'{"results":[[["null",null],["b",0.1]],[["c",null],["d",null]]]}'
    assert answer("classify", {"classes": LABELS, "scores": scores}, Config(non_finite="null")) == nulls


def test_answers_may_have_no_rows() -> None:
    """Nothing found is an empty list for each example."""
    assert answer("classify", {"scores": np.zeros((2, 0), np.float32)}) == b'{"results":[[],[]]}'
    assert answer("regress", {"outputs": np.zeros((0,), np.float32)}, examples=0) == b'{"results":[]}'


@pytest.mark.parametrize(
    ("verb", "outputs", "told"),
    [
        (
            "classify",
            {"scores": np.zeros(2, np.float32)},
            "Expected Tensor shape: [batch_size num_classes] but got [2]",
        ),
        ("classify", {"scores": np.zeros((3, 1), np.float32)}, "Expected scores output batch size of 2. Got: 3"),
        ("classify", {"scores": np.zeros((2, 1), np.int64)}, "Expected scores Tensor of DT_FLOAT. Got: int64"),
        ("classify", {"classes": np.zeros((2, 1), np.int64)}, "Expected classes Tensor of DT_STRING. Got: int64"),
        ("classify", {"classes": LABELS, "scores": np.zeros((2, 1))}, "should match in dim_size(1). Got 2 vs. 1"),
        ("regress", {"y": np.zeros((3, 1), np.float32)}, "Expected y output batch size of 2. Got: 3"),
        ("regress", {"y": np.zeros(2, np.int64)}, "Expected output Tensor of DT_FLOAT.  Got: int64"),
    ],
)
def test_outputs_of_another_form_are_refused(verb: str, outputs: dict[str, Any], told: str) -> None:
    """What the model gave must be what the method promises."""
    with pytest.raises(GatewayError) as caught:
        answer(verb, outputs)
    assert told in str(caught.value)
