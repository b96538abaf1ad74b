"""Cases of the REST protocol, written from the specification and from Triton's binary tensor extension.

Source: kserve/open-inference-protocol, specification/protocol/inference_rest.md; triton-inference-server/server,
docs/protocol/extension_binary_data.md, extension_generate.md and extension_model_repository.md.
"""

import json
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Json = dict[str, Any]


class Case(NamedTuple):
    """A request and what must come back."""

    id: str
    path: str
    body: Json | bytes | None
    """None for GET."""
    status: int
    expect: Any
    """The whole JSON; for errors a part of the text."""
    headers: Mapping[str, str] = MappingProxyType({})


def tensor(datatype: str, shape: list[int], data: Any, name: str = "x", **more: Any) -> Json:
    """One input or output."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": data, **more}


def infer(*inputs: Any, **more: Any) -> Json:
    """A request."""
    return {"inputs": list(inputs), **more}


def answer(model: str, *outputs: Json, version: str = "1", **more: Any) -> Json:
    """A response."""
    return {"model_name": model, "model_version": version, **more, "outputs": list(outputs)}


def same(case: str, datatype: str, shape: list[int], data: Any, given: Any = None, model: str = "") -> Case:
    """What an echo gives back flat."""
    model = model or datatype
    flat = tensor(datatype, shape, data)
    sent = tensor(datatype, shape, data if given is None else given)
    return Case(case, f"/v2/models/{model}/infer", infer(sent), 200, answer(model, flat))


def wrong(case: str, expect: str, *inputs: Any, model: str = "FP32", status: int = 400, **more: Any) -> Case:
    """A request that is refused."""
    return Case(case, f"/v2/models/{model}/infer", infer(*inputs, **more), status, expect)


def binary(document: Json, *parts: bytes, length: int | str | None = None) -> tuple[bytes, dict[str, str]]:
    """A body of JSON and bytes behind it, and its header."""
    text = json.dumps(document).encode()
    shown = len(text) if length is None else length
    return b"".join((text, *parts)), {"Inference-Header-Content-Length": str(shown)}


def announced(datatype: str, shape: list[int], size: Any, **more: Any) -> Json:
    """An input whose bytes follow."""
    return {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}, **more}


def bad_binary(
    case: str, expect: str, item: Json, *parts: bytes, length: Any = None, model: str = "FP32", status: int = 400
) -> Case:
    """A binary request that is refused."""
    body, headers = binary(infer(item), *parts, length=length)
    return Case(case, f"/v2/models/{model}/infer", body, status, expect, headers)


CONTROL = {"Authorization": "APPCODE control"}
LOCKED = {"Authorization": "APPCODE opensesame"}
ONE = tensor("FP32", [1], [1.5])
FLOATS = struct.pack("<2f", 1.5, -2.5)
BIG = list(range(300))

SERVER = [
    Case("live", "/v2/health/live", None, 200, {"live": True}),
    Case("ready", "/v2/health/ready", None, 200, {"ready": True}),
    Case("model-ready", "/v2/models/FP32/ready", None, 200, {"name": "FP32", "ready": True}),
    Case("version-ready", "/v2/models/versions/versions/2/ready", None, 200, {"name": "versions", "ready": True}),
    Case("label-ready", "/v2/models/versions/versions/stable/ready", None, 200, {"name": "versions", "ready": True}),
    Case("version-not-ready", "/v2/models/versions/versions/7/ready", None, 400, {"name": "versions", "ready": False}),
    Case("unknown-not-ready", "/v2/models/nope/ready", None, 404, "Model nope not found"),
    Case(
        "metadata",
        "/v2/models/versions",
        None,
        200,
        {
            "name": "versions",
            "versions": ["1", "2"],
            "platform": "onnxruntime_onnx",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
        },
    ),
    Case("metadata-unknown-model", "/v2/models/nope", None, 404, "Model nope not found"),
    Case("metadata-unknown-version", "/v2/models/versions/versions/7", None, 404, "versions with version 7 not found"),
    Case("metadata-unknown-label", "/v2/models/versions/versions/old", None, 404, "no label 'old'"),
    Case("unknown-path", "/v2/modles/FP32", None, 404, "no such path"),
    Case("wrong-method", "/v2/models/FP32/infer", None, 405, "POST"),
    Case("metadata-locked", "/v2/models/locked", None, 401, "key"),
]

VALUES = [
    same("bool", "BOOL", [3], [True, False, True]),
    same("bool-numbers", "BOOL", [2], [True, False], [1, 0]),
    same("int8", "INT8", [2], [-128, 127]),
    same("int16", "INT16", [2], [-32768, 32767]),
    same("int32", "INT32", [2], [-(2**31), 2**31 - 1]),
    same("int64", "INT64", [3], [-(2**63), 2**53 + 1, 2**63 - 1]),
    same("uint8", "UINT8", [2], [0, 255]),
    same("uint16", "UINT16", [2], [0, 65535]),
    same("uint32", "UINT32", [2], [0, 2**32 - 1]),
    same("uint64", "UINT64", [2], [0, 2**64 - 1]),
    same("fp16", "FP16", [3], [0.5, -65504.0, 0.25]),
    same("fp32", "FP32", [4], [0.1, -3.4028235e38, 1e-45, -0.0]),
    same("fp32-whole", "FP32", [2], [1.0, 2.0], [1, 2]),
    same("fp64", "FP64", [2], [0.1, 5e-324]),
    same("bf16", "BF16", [2], [1.5, -0.0078125]),
    same("bytes", "BYTES", [3], ["", "été", "a\nb"]),
    same("bytes-one-bare", "BYTES", [1], ["hello"], "hello"),
    same("float8-is-fp32", "FP32", [2], [0.5, 448.0], model="float8"),
    same("scalar", "FP32", [], [1.5]),
    same("scalar-bare", "FP32", [], [1.5], 1.5),
    same("empty", "FP32", [0], []),
    same("empty-nested", "FP32", [2, 0], [], [[], []]),
    same("nested", "FP32", [2, 2], [1.0, 2.0, 3.0, 4.0], [[1, 2], [3, 4]]),
    same("nested-large", "INT64", [30, 10], BIG, [BIG[i : i + 10] for i in range(0, 300, 10)]),
    same("nested-many-rows", "INT64", [150, 2], BIG, [BIG[i : i + 2] for i in range(0, 300, 2)]),
    same("flat-large", "FP32", [10, 30], [float(one) for one in BIG], BIG),
    same("large-int64", "INT64", [300], [2**53 + 1 + one for one in BIG]),
    same("large-texts", "BYTES", [300], [f"t{one}" for one in BIG]),
]

ENVELOPE = [
    Case("id", "/v2/models/FP32/infer", infer(ONE, id="a-1"), 200, answer("FP32", ONE, id="a-1")),
    Case("empty-id", "/v2/models/FP32/infer", infer(ONE, id=""), 200, answer("FP32", ONE, id="")),
    Case("unknown-keys", "/v2/models/FP32/infer", infer(ONE | {"extra": [1]}, more={}), 200, answer("FP32", ONE)),
    Case("parameters", "/v2/models/FP32/infer", infer(ONE, parameters={"priority": 1}), 200, answer("FP32", ONE)),
    Case(
        "signature-name",
        "/v2/models/FP32/infer",
        infer(ONE, parameters={"signature_name": "serving_default"}),
        200,
        answer("FP32", ONE),
    ),
    Case(
        "version",
        "/v2/models/versions/versions/1/infer",
        infer(tensor("FP32", [1, 2], [1.0, 2.0])),
        200,
        answer("versions", tensor("FP32", [1, 2], [1.0, 2.0], "y")),
    ),
    Case(
        "newest-version",
        "/v2/models/versions/infer",
        infer(tensor("FP32", [1, 2], [1.0, 2.0])),
        200,
        answer("versions", tensor("FP32", [1, 2], [1.0, 2.0], "y"), version="2"),
    ),
    Case("nameless", "/services/FP32/v2/models/infer", infer(ONE), 200, answer("FP32", ONE)),
    Case("by-header", "/v2/models/infer", infer(ONE), 200, answer("FP32", ONE), {"X-Tensorgate-Service": "FP32"}),
    Case("nobody-named", "/v2/models/infer", infer(ONE), 404, "names no service"),
    Case(
        "outputs-in-order",
        "/v2/models/two/infer",
        infer(
            tensor("FP32", [1, 2], [1.0, 2.0], "a"),
            tensor("INT64", [1], [3], "b"),
            outputs=[{"name": "b"}, {"name": "a"}],
        ),
        200,
        answer("two", tensor("INT64", [1], [3], "b"), tensor("FP32", [1, 2], [1.0, 2.0], "a")),
    ),
    Case(
        "one-output",
        "/v2/models/two/infer",
        infer(tensor("INT64", [1], [3], "b"), tensor("FP32", [1, 2], [1, 2], "a"), outputs=[{"name": "b"}]),
        200,
        answer("two", tensor("INT64", [1], [3], "b")),
    ),
    Case(
        "base64-in",
        "/v2/models/BYTES/infer",
        infer(tensor("BYTES", [1], ["aGk="], parameters={"content_type": "base64"})),
        200,
        answer("BYTES", tensor("BYTES", [1], ["hi"])),
    ),
    Case(
        "base64-out",
        "/v2/models/BYTES/infer",
        infer(tensor("BYTES", [2], ["/w==", "aGk="], parameters={"content_type": "base64"})),
        200,
        answer("BYTES", tensor("BYTES", [2], ["/w==", "aGk="], parameters={"content_type": "base64"})),
    ),
    Case("locked-with-key", "/v2/models/locked/infer", infer(ONE), 200, answer("locked", ONE), LOCKED),
    Case("locked-without", "/v2/models/locked/infer", infer(ONE), 401, "key"),
    Case("locked-wrong-key", "/v2/models/locked/infer", infer(ONE), 401, "key", {"Authorization": "APPCODE no"}),
    Case("other-type", "/v2/models/other/infer", infer(ONE), 404, "tfserving calls only"),
]  # fmt: skip

MISTAKES = [
    Case("not-json", "/v2/models/FP32/infer", b"{", 400, "not JSON"),
    Case("empty-body", "/v2/models/FP32/infer", b"", 400, "not JSON"),
    Case("not-an-object", "/v2/models/FP32/infer", b"[1]", 400, "must be a JSON object"),
    Case("trailing-garbage", "/v2/models/FP32/infer", b"{} x", 400, "Extra data"),
    Case("not-utf8", "/v2/models/FP32/infer", b'{"id": "\xff"}', 400, "UTF-8"),
    Case("too-deep", "/v2/models/FP32/infer", b'{"inputs":' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "nested"),
    Case("no-inputs", "/v2/models/FP32/infer", {}, 400, 'the model takes "x" FP32'),
    Case("inputs-no-list", "/v2/models/FP32/infer", {"inputs": {}}, 400, 'list of tensors; the model takes "x" FP32'),
    Case("unknown-model", "/v2/models/nope/infer", infer(ONE), 404, "Model nope not found"),
    Case("unknown-version", "/v2/models/versions/versions/9/infer", infer(ONE), 404, "version 9 not found"),
    Case("huge-version", f"/v2/models/FP32/versions/{2**64}/infer", infer(ONE), 404, "version"),
    wrong("input-no-object", "must be an object", [1]),
    wrong("no-name", "name must be a string", {"shape": [1], "datatype": "FP32", "data": [1]}),
    wrong("unknown-input", "no input 'z'; the model takes \"x\" FP32", ONE | {"name": "z"}),
    wrong("missing-input", 'missing "b"', tensor("FP32", [1, 2], [1, 2], "a"), model="two"),
    wrong("twice", "given twice", ONE, ONE),
    wrong("no-datatype", "unknown datatype", {"name": "x", "shape": [1], "data": [1]}),
    wrong("unknown-datatype", "unknown datatype 'FP31'", ONE | {"datatype": "FP31"}),
    wrong("other-datatype", "is sent as INT64, but the model takes FP32", ONE | {"datatype": "INT64"}),
    wrong("no-shape", "shape is missing", {"name": "x", "datatype": "FP32", "data": [1]}),
    wrong("shape-no-list", "shape must be a list", ONE | {"shape": 1}),
    wrong("shape-negative", "whole numbers from 0 on", ONE | {"shape": [-1]}),
    wrong("shape-fraction", "whole numbers from 0 on", ONE | {"shape": [1.0]}),
    wrong("shape-bool", "whole numbers from 0 on", ONE | {"shape": [True]}),
    wrong("shape-too-long", "at most 64", ONE | {"shape": [1] * 65}),
    wrong("shape-overflow", "more than the limit", ONE | {"shape": [2**31, 2**31]}, status=413),
    wrong("shape-overflow-64", "more than the limit", ONE | {"shape": [2**32, 2**32]}, status=413),
    wrong("shape-empty-but-huge", "more than the limit", tensor("FP32", [0, 2**62], []), status=413),
    wrong("too-many-elements", "more than the limit", ONE | {"shape": [1000001]}, status=413),
    wrong("too-few-values", "the shape holds 2 elements, but data has 1", ONE | {"shape": [2]}),
    wrong("too-many-values", "data has 2", ONE | {"data": [1, 2]}),
    wrong("no-data", "there is no data", {"name": "x", "shape": [1], "datatype": "FP32"}),
    wrong("data-null", "data must be a list", tensor("FP32", [2], None)),
    wrong("ragged", "ragged", tensor("FP32", [2, 2], [[1, 2], [3]])),
    wrong("ragged-large", "ragged", tensor("FP32", [150, 2], [[1], [2, 3, 4]] + [[1, 2]] * 148)),
    wrong("hidden-list", "ragged", tensor("FP32", [300], [*BIG[:-1], [1]])),
    wrong("hidden-empty-list", "ragged", tensor("FP32", [299], [*BIG[:-1], []])),
    wrong("nested-otherwise", "nested 2 deep", tensor("FP32", [4], [[1, 2], [3, 4]]), model="FP32"),
    wrong("nested-transposed", "nested as [2, 3]", tensor("FP32", [3, 2], [[1, 2, 3], [4, 5, 6]])),
    wrong("string-for-number", "element 1 is 'a'", tensor("FP32", [2], [1, "a"])),
    wrong("bool-for-number", "element 0 is true", tensor("FP32", [1], [True])),
    wrong("number-for-string", "element 0 is 5", tensor("BYTES", [1], [5]), model="BYTES"),
    wrong("object-for-number", "an object", tensor("FP32", [1], [{}])),
    wrong("null-for-integer", "element 0 is null", tensor("INT64", [1], [None]), model="INT64"),
    wrong("fraction-for-integer", "element 0 is 1.5", tensor("INT64", [1], [1.5]), model="INT64"),
    wrong("two-for-bool", "element 0 is 2", tensor("BOOL", [1], [2]), model="BOOL"),
    wrong("uint8-overflow", "out of range", tensor("UINT8", [1], [256]), model="UINT8"),
    wrong("uint8-negative", "out of range", tensor("UINT8", [1], [-1]), model="UINT8"),
    wrong("int64-overflow", "out of range", tensor("INT64", [1], [2**63]), model="INT64"),
    wrong("int64-overflow-large", "out of range", tensor("INT64", [300], [*BIG[:-1], 2**63]), model="INT64"),
    wrong("lone-surrogate", "Unicode", tensor("BYTES", [1], ["\ud800"]), model="BYTES"),
    wrong("lone-surrogate-id", "id must be a string", ONE, id="\ud800"),
    wrong("bad-base64", "base64", tensor("BYTES", [1], ["%"], parameters={"content_type": "base64"}), model="BYTES"),
    wrong("id-number", "id must be a string", ONE, id=5),
    wrong("parameters-no-object", "must be an object", ONE, parameters=[]),
    wrong("input-parameters-no-object", "must be an object", ONE | {"parameters": 1}),
    wrong("unknown-signature", "no signature 'no'", ONE, parameters={"signature_name": "no"}),
    wrong("signature-no-string", "signature_name must be a string", ONE, parameters={"signature_name": 1}),
    wrong("outputs-no-list", "outputs must be a list", ONE, outputs={}),
    wrong("output-no-name", "an entry of outputs", ONE, outputs=[{}]),
    wrong("unknown-output", "no output 'q'; the model gives \"x\"", ONE, outputs=[{"name": "q"}]),
    wrong("binary-no-flag", "binary_data must be", ONE, outputs=[{"name": "x", "parameters": {"binary_data": 1}}]),
    wrong("binary-all-no-flag", "binary_data_output must be", ONE, parameters={"binary_data_output": "yes"}),
    wrong("classification", "not served", ONE, outputs=[{"name": "x", "parameters": {"classification": 2}}]),
    wrong("shared-memory", "not served", ONE | {"parameters": {"shared_memory_region": "r"}}),
    wrong("wrong-rank", 'input "x" is float32 of shape [2]', tensor("FP32", [2], [1, 2]), model="rows"),
    Case("number-too-big", "/v2/models/FP64/infer", b'{"inputs": [1e999]}', 400, "number is out of range"),
    Case("number-too-long", "/v2/models/FP64/infer", b'{"id": ' + b"9" * 5000 + b"}", 400, "number is out of range"),
    wrong("integer-beyond-double", "out of range", tensor("FP64", [1], [10**400]), model="FP64"),
]  # fmt: skip

BINARY = [
    bad_binary("bytes-missing", "add up to 8 bytes, but 4 follow", announced("FP32", [2], 8), FLOATS[:4]),
    bad_binary("bytes-left", "add up to 4 bytes, but 8 follow", announced("FP32", [1], 4), FLOATS),
    bad_binary("bytes-not-of-shape", "3 elements of FP32 are 12 bytes", announced("FP32", [3], 8), FLOATS),
    bad_binary("size-negative", "binary_data_size must be", announced("FP32", [2], -8), FLOATS),
    bad_binary("size-text", "binary_data_size must be", announced("FP32", [2], "8"), FLOATS),
    bad_binary("size-bool", "binary_data_size must be", announced("FP32", [1], True), FLOATS),
    bad_binary("size-and-data", "either data or", announced("FP32", [2], 8, data=[1, 2]), FLOATS),
    bad_binary("size-huge", "add up to", announced("FP32", [2], 2**70), FLOATS),
    bad_binary("header-too-long", "must be at most", announced("FP32", [2], 8), FLOATS, length=10**6),
    bad_binary("header-no-number", "must be at most", announced("FP32", [2], 8), FLOATS, length="x"),
    bad_binary("header-negative", "must be at most", announced("FP32", [2], 8), FLOATS, length="-1"),
    bad_binary("header-endless", "must be at most", announced("FP32", [2], 8), FLOATS, length="9" * 40),
    bad_binary("header-too-short", "not JSON", announced("FP32", [2], 8), FLOATS, length=5),
    bad_binary("bool-of-two", "0 or 1", announced("BOOL", [1], 1), b"\x02", model="BOOL"),
    bad_binary("string-cut", "cut off", announced("BYTES", [1], 6), b"\x05\0\0\0ab", model="BYTES"),
    bad_binary("string-length-cut", "at least 8 bytes", announced("BYTES", [2], 5), b"\x01\0\0\0a", model="BYTES"),
    bad_binary("string-second-cut", "string 1 is cut", announced("BYTES", [2], 8), b"\x02\0\0\0ab\0\0", model="BYTES"),
    bad_binary("string-left", "left after", announced("BYTES", [1], 6), b"\x01\0\0\0ab", model="BYTES"),
    bad_binary("elements", "more than the limit", announced("FP32", [2**20], 8), FLOATS, status=413),
]

GENERATE = [
    Case(
        "generate",
        "/v2/models/text/generate",
        {"text_input": "hi", "max_tokens": 5, "id": "g"},
        200,
        {"model_name": "text", "model_version": "1", "id": "g", "text_output": "hi"},
    ),
    Case(
        "generate-by-name",
        "/v2/models/text/generate",
        {"prompt": ["a", "b"], "parameters": {"temperature": 0.5}},
        200,
        {"model_name": "text", "model_version": "1", "text_output": ["a", "b"]},
    ),
    Case(
        "generate-misfit",
        "/v2/models/two/generate",
        {"a": [1, 2, 3], "b": 7},
        400,
        "of shape [3,1]",
    ),
    Case(
        "generate-row",
        "/v2/models/two/generate",
        {"a": [1, 2], "b": 7},
        200,
        {"model_name": "two", "model_version": "1", "a": [1.0, 2.0], "b": 7},
    ),
    Case(
        "generate-v2-form",
        "/v2/models/text/generate",
        infer(tensor("BYTES", [1], ["hi"], "prompt")),
        200,
        answer("text", tensor("BYTES", [1], ["hi"], "prompt_out")),
    ),
    Case("generate-nothing", "/v2/models/text/generate", {}, 400, 'missing "prompt"'),
    Case("generate-ragged", "/v2/models/FP32/generate", {"x": [[1, 2], [3], [4, 5, 6]]}, 400, "ragged"),
    Case("generate-too-deep", "/v2/models/text/generate", {"prompt": [["a"]]}, 400, "nested 2 deep"),
    Case("generate-number", "/v2/models/text/generate", {"text_input": 5}, 400, "element 0 is 5"),
    Case("generate-no-json", "/v2/models/text/generate", b"x", 400, "not JSON"),
    Case("generate-stream-wrong", "/v2/models/text/generate_stream", {"text_input": 5}, 400, "element 0 is 5"),
    Case("generate-stream-nobody", "/v2/models/nope/generate_stream", {"text_input": "x"}, 404, "Model nope not found"),
]

CLASS = [
    Case(
        "class-doubles",
        "/v2/models/python/infer",
        infer(tensor("INT64", [2], [2**53 + 1, 3], "anything")),
        200,
        answer("python", tensor("INT64", [2], [2**54 + 2, 6], "Y")),
    ),
    Case(
        "class-says-json",
        "/v2/models/python/infer",
        infer(tensor("BYTES", [1], ["é"], "X"), parameters={"json": 1, "meta": 2, "names": 3}),
        200,
        answer("python", tensor("BYTES", [1], ['{"texts": ["é"]}'], "Y")),
    ),
    Case("class-refuses", "/v2/models/python/infer", infer(tensor("BOOL", [1], [True])), 418, "no truths please"),
    Case(
        "class-generates",
        "/v2/models/python/generate",
        {"X": [1.5, 2]},
        200,
        {"model_name": "python", "model_version": "1", "Y": [3.0, 4.0]},
    ),
]

REPOSITORY = [
    Case("load-without-key", "/v2/repository/models/extra/load", {}, 401, "key"),
    Case("load-outside", "/v2/repository/models/extra/load", {"parameters": {"url": "/etc"}}, 403, "outside", CONTROL),
    Case("load-unknown", "/v2/repository/models/nope/load", {}, 404, "no folder 'nope'", CONTROL),
    Case("load-config", "/v2/repository/models/extra/load", {"parameters": {"config": "{}"}}, 400, "only", CONTROL),
    Case("load-traversal", "/v2/repository/models/..%2Fmodels/load", {}, 400, "not a model name", CONTROL),
    Case("unload-unknown", "/v2/repository/models/nope/unload", {}, 404, "Model nope not found", CONTROL),
    Case("index-no-flag", "/v2/repository/index", {"ready": 1}, 400, "ready must be true or false"),
]  # fmt: skip

CASES = [*SERVER, *VALUES, *ENVELOPE, *MISTAKES, *BINARY, *GENERATE, *CLASS, *REPOSITORY]
