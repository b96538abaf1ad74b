"""Whatever bytes come under whatever type, SageMaker's dialect has a tensor or a refusal for them; fast is exact."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sagemaker_decoding import model

from adapters.sagemaker import forms, grids, requests, responses
from adapters.sagemaker.errors import encode
from gateway.errors import GatewayError, InferenceFailed, NotAcceptable, RequestError
from gateway.interfaces import DecodeLimits
from gateway.types import Call, ResponseForm, TensorSpec

LIMITS = DecodeLimits(elements=1000)
SHAPES = [(None, 4), (None,), (), None, (None, 2, 2), (1, 4), (4,), (None, None), (2, 3, None)]
SPECS = [TensorSpec("x", dtype, shape) for dtype in ("float32", "int64", "string", "bool", "uint8") for shape in SHAPES]
MODELS = [model(spec) for spec in SPECS]
MODELS += [
    model(TensorSpec("x", "float32", (None, 2, 2), "image")),
    model(SPECS[0], TensorSpec("y", "string", (None,))),
]

TYPES = [*requests._READERS, "image/png", ""]
WHOLE = [
    b"1,2,3,4\n5,6,7,8", b'{"instances":[{"features":[1,2,3,4]}]}', b"[[1,2,3,4],[5,6,7,8]]", b"0 0:1 3:2",
    b'{"instances":[{"data":{"features":{"keys":[0,3],"shape":[4],"values":[1,2]}}}]}', b'{"inputs":{"x":[[1,2,3,4]]}}',
    b'{"features":[1,2,3,4]}\n{"features":[5,6,7,8]}', b'{"x":{"b64":"AAAA"},"y":"a"}',
    b'{"inputs":"a","parameters":{}}',
    b"\x0a\x23\xd7\xce\x20\0\0\0\x0a\x1e\x0a\x06values\x12\x14\x12\x12\x0a\x10" + bytes(16),
    b"\x93NUMPY\x01\0v\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }".ljust(117) + bytes(17),
]  # fmt: skip
PIECES = st.sampled_from(
    [b"[", b"]", b"{", b"}", b",", b'"', b"1", b"-", b"e9", b"null", b"\n", b"\0", b"NaN", b'"x"', b" "]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A body that was right, with a few bytes gone, changed or put in."""
    body = draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(body)))
        end = start + draw(st.sampled_from([0, 0, 1, 3, 1000]))
        body = body[:start] + draw(PIECES | st.binary(max_size=4)) + body[end:]
    return body


@settings(max_examples=400, deadline=None)
@given(body=damaged() | st.binary(max_size=64), content_type=st.sampled_from(TYPES), model=st.sampled_from(MODELS))
def test_any_body_is_tensors_or_a_refusal(body: bytes, content_type: str, model: Any) -> None:
    """Tensors of the declared dtypes, or an error of the house that is the client's."""
    try:
        decoded = requests.decode(body, content_type, model, LIMITS, "auto")
    except RequestError as error:
        reply = encode(error, Call("POST", "/invocations"))
        assert 400 <= reply.status < 500
    else:
        specs = model.signatures["serving_default"].inputs
        assert decoded.inputs.keys() <= specs.keys()
        for name, tensor in decoded.inputs.items():
            assert tensor.dtype in (specs[name].numpy_dtype, object)
            assert tensor.flags.c_contiguous


NUMBERS = st.sampled_from(
    ["1", "2.5", "-3", "1e3", "0", "9007199254740993", "123456789012345678901", "-1e-7", "\n8", " 7 "]
)
WRAPPINGS = st.sampled_from(
    ['{"features":[%s]}', '{"data":{"features":{"values":[%s]}}}', "[%s]", '{ "features" : [ %s ] }']
)


@st.composite
def grids_of_json(draw: st.DrawFn) -> bytes:
    """Rows wrapped alike, now and then with a flaw."""
    wrapping = draw(WRAPPINGS)
    rows = [
        wrapping % ",".join(draw(st.lists(NUMBERS, min_size=3, max_size=5))) for _ in range(draw(st.integers(1, 3)))
    ]
    text = "[" + draw(st.sampled_from([",", ", ", " ,\n"])).join(rows) + "]"
    body = draw(st.sampled_from(['{"instances":%s}', "%s", ' { "instances": %s } '])) % text
    at = draw(st.integers(0, len(body)))
    return (body[:at] + draw(st.sampled_from(["", "", "[", "]", "}", ",", "1", "\n", '"id":1,'])) + body[at:]).encode()


@settings(max_examples=400, deadline=None)
@given(body=grids_of_json(), model=st.sampled_from(MODELS[:18]))
def test_fast_way_is_the_exact_way(body: bytes, model: Any) -> None:
    """Where rows of numbers are read in one step, the tensor or the refusal is the one of the slow way."""
    results = []
    for reader in (grids.json_rows, lambda *_: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(requests.grids, "json_rows", reader)
            try:
                [tensor] = requests.decode(body, "application/json", model, DecodeLimits(), "auto").inputs.values()
                results.append((str(tensor.dtype), tensor.shape, tensor.tobytes()))
            except GatewayError as error:
                results.append((type(error).__name__, (), str(error).encode()))
    assert results[0] == results[1]


@st.composite
def outputs(draw: st.DrawFn) -> dict[str, Any]:
    """What a model may give: any dtype, any rank, rows or none."""
    made = {}
    for name in draw(
        st.lists(st.sampled_from(["score", "label", 'we"ird', "ünï", "d"]), min_size=1, max_size=3, unique=True)
    ):
        shape = draw(st.sampled_from([(2,), (2, 1), (2, 2), (2, 3), (2, 2, 2), (2, 0), (3,), (), (1, 5)]))
        array = np.ones(shape, draw(st.sampled_from(["f4", "f8", "i8", "?", "f2", "u1", "O"])))
        array[...] = draw(st.sampled_from(['ab"c,\n', b"\xff\0", ""])) if array.dtype == object else array
        if array.dtype.kind == "f" and array.size:
            array.flat[0] = draw(st.sampled_from([1.5, float("nan"), float("inf")]))
        made[name] = array
    return made


@settings(max_examples=400, deadline=None)
@given(
    outputs=outputs(),
    form=st.sampled_from(forms.FORMS),
    media=st.sampled_from(responses.OFFERS),
    verbose=st.booleans(),
)
def test_any_output_is_written_or_refused(outputs: dict[str, Any], form: str, media: str, verbose: bool) -> None:
    """Every form writes every output in every type, or says what is missing; JSON is JSON, lines end."""
    try:
        text = responses.encode(forms.view(outputs, ResponseForm(form), 2, verbose), media)
    except (InferenceFailed, NotAcceptable):
        return
    if media == responses.JSON:
        json.loads(text)
    elif "json" in media:
        assert text.endswith(b"\n") or not text
        assert all(json.loads(line) is not ... for line in text.split(b"\n")[:-1])
    elif media == responses.CSV:
        assert text.endswith(b"\n") or not text
