"""The REST protocol's cases against a live gateway."""

import gzip
import json
import struct
from typing import Any

import httpx
import pytest
from conformance.v2.cases import CASES, CONTROL, FLOATS, LOCKED, Case, announced, answer, binary, infer, tensor
from live import LiveGateway


def _ask(live: LiveGateway, case: Case) -> httpx.Response:
    if case.body is None:
        return httpx.get(f"{live.url}{case.path}", headers=case.headers)
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    return httpx.post(f"{live.url}{case.path}", content=body, headers=case.headers)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(live: LiveGateway, case: Case) -> None:
    """The status and the whole answer are as the case says; an error is `{"error": text}` and nothing else."""
    reply = _ask(live, case)
    assert (reply.status_code, reply.headers["content-type"]) == (case.status, "application/json"), reply.text
    if isinstance(case.expect, str):
        assert list(reply.json()) == ["error"]
        assert case.expect in reply.json()["error"]
    else:
        # As text, so that -0.0 and 1.0 are not 0.0 and 1...
        assert json.dumps(reply.json(), sort_keys=True) == json.dumps(case.expect, sort_keys=True)


def test_cases_have_names_of_their_own() -> None:
    """No case hides another."""
    names = [case.id for case in CASES]
    assert sorted(set(names)) == sorted(names)


def test_server_metadata(live: LiveGateway) -> None:
    """The server names itself and the extensions that it speaks, with and without a slash at the end."""
    told = httpx.get(f"{live.url}/v2").json()
    assert set(told) == {"name", "version", "extensions"}
    assert told["name"] == "tensorgate"
    assert "binary_tensor_data" in told["extensions"]
    assert httpx.get(f"{live.url}/v2/").json() == told


@pytest.mark.parametrize(
    ("sent", "given"), [("NaN", "NaN"), ("null", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity")]
)
@pytest.mark.parametrize("model", ["FP32", "FP64", "FP16"])
def test_not_finite(live: LiveGateway, model: str, sent: str, given: str) -> None:
    """NaN and infinities pass in both directions as tokens, and null is NaN."""
    body = f'{{"inputs": [{{"name": "x", "shape": [2], "datatype": "{model}", "data": [1, {sent}]}}]}}'
    reply = httpx.post(f"{live.url}/v2/models/{model}/infer", content=body)
    assert f'"data":[1.0,{given}]' in reply.text


def test_gzip(live: LiveGateway) -> None:
    """A compressed body is undone; the JSON part's length is that of the plain text."""
    body, headers = binary(infer(announced("FP32", [2], 8)), FLOATS)
    reply = httpx.post(
        f"{live.url}/v2/models/FP32/infer",
        content=gzip.compress(body),
        headers=headers | {"Content-Encoding": "gzip"},
    )
    assert reply.json() == answer("FP32", tensor("FP32", [2], [1.5, -2.5]))


def _split(reply: httpx.Response) -> tuple[dict[str, Any], bytes]:
    length = int(reply.headers["inference-header-content-length"])
    assert reply.headers["content-type"] == "application/octet-stream"
    return json.loads(reply.content[:length]), reply.content[length:]


@pytest.mark.parametrize(
    ("datatype", "raw", "shape"),
    [
        ("BOOL", b"\0\1", [2]),
        ("INT8", b"\x80\x7f", [2]),
        ("INT16", struct.pack("<2h", -32768, 1), [2]),
        ("INT32", struct.pack("<2i", -(2**31), 1), [1, 2]),
        ("INT64", struct.pack("<q", 2**53 + 1), [1]),
        ("UINT8", b"\xff", [1]),
        ("UINT16", b"\xff\xff", [1]),
        ("UINT32", b"\xff" * 4, [1]),
        ("UINT64", b"\xff" * 8, [1]),
        ("FP16", b"\x01\x00\x00\x7c", [2]),
        ("FP32", struct.pack("<4f", 0.1, -0.0, float("inf"), 1e-45), [2, 2]),
        ("FP32", b"", [0, 3]),
        ("FP64", struct.pack("<d", 5e-324), [1]),
        ("BF16", b"\xc0\x3f\x80\xff\xc1\x7f", [3]),
        ("BYTES", b"\x02\0\0\0\xff\0\0\0\0\0\3\0\0\0abc", [3]),
        ("BYTES", b"", [0]),
    ],
)
def test_binary_round_trip(live: LiveGateway, datatype: str, raw: bytes, shape: list[int]) -> None:
    """Bytes that go in come out again, bit by bit."""
    body, headers = binary(infer(announced(datatype, shape, len(raw)), parameters={"binary_data_output": True}), raw)
    reply = httpx.post(f"{live.url}/v2/models/{datatype}/infer", content=body, headers=headers)
    document, tail = _split(reply)
    output = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    assert document == answer(datatype, output)
    assert tail == raw


def test_binary_for_some(live: LiveGateway) -> None:
    """Each output's own wish beats that for all; inputs may be mixed, and the bytes follow in order."""
    inputs = [
        tensor("INT64", [1], [7], "b"),
        {"name": "a", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}},
    ]
    outputs = [{"name": "b"}, {"name": "a", "parameters": {"binary_data": False}}]
    request = infer(*inputs, outputs=outputs, parameters={"binary_data_output": True})
    body, headers = binary(request, FLOATS)
    document, tail = _split(httpx.post(f"{live.url}/v2/models/two/infer", content=body, headers=headers))
    first = {"name": "b", "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": 8}}
    assert document == answer("two", first, tensor("FP32", [1, 2], [1.5, -2.5], "a"))
    assert tail == struct.pack("<q", 7)


@pytest.mark.parametrize(("model", "shape"), [("rows", [1, 2]), ("BYTES", [1])])
def test_only_a_tensor(live: LiveGateway, model: str, shape: list[int]) -> None:
    """A body without JSON is the only input, whose free dimension its size gives; the answer is binary."""
    headers = {"Inference-Header-Content-Length": "0"}
    document, tail = _split(httpx.post(f"{live.url}/v2/models/{model}/infer", content=FLOATS, headers=headers))
    assert document["outputs"][0]["shape"] == shape
    assert tail == (FLOATS if model == "rows" else b"\x08\0\0\0" + FLOATS)


@pytest.mark.parametrize(
    ("model", "body", "text"),
    [
        ("rows", b"123", "multiples of 8 bytes"),
        ("grid", FLOATS, "does not follow"),
        ("two", b"", "models of one input"),
    ],
)
def test_only_a_tensor_refused(live: LiveGateway, model: str, body: bytes, text: str) -> None:
    """A body without JSON that fits no shape is a mistake."""
    headers = {"Inference-Header-Content-Length": "0"}
    reply = httpx.post(f"{live.url}/v2/models/{model}/infer", content=body, headers=headers)
    assert (reply.status_code, text in reply.json()["error"]) == (400, True), reply.text


def test_generate_stream(live: LiveGateway) -> None:
    """Each part is an event with a JSON object."""
    reply = httpx.post(f"{live.url}/v2/models/text/generate_stream", json={"prompt": ["a", "b"], "id": "s"})
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = reply.text.split("\n\n")
    assert events.pop() == ""
    head = {"model_name": "text", "model_version": "1", "id": "s"}
    parts = [head | {"text_output": text} for text in ("a", "b")]
    assert [json.loads(event.removeprefix("data: ")) for event in events] == parts


def test_generate_stream_in_v2_form(live: LiveGateway) -> None:
    """A streamed inference request is answered in parts of its own form."""
    request = infer(tensor("BYTES", [2], ["a", "b"], "prompt"))
    reply = httpx.post(f"{live.url}/v2/models/text/generate_stream", json=request)
    parts = [json.loads(event.removeprefix("data: ")) for event in reply.text.split("\n\n")[:-1]]
    assert parts == [answer("text", tensor("BYTES", [1], [text], "prompt_out")) for text in ("a", "b")]


def test_generate_stream_breaks(live: LiveGateway) -> None:
    """A model whose inputs cannot be streamed fails before the first part, with a status of its own."""
    body = {"a": [[1, 2], [3, 4]], "b": 1}
    reply = httpx.post(f"{live.url}/v2/models/two/generate_stream", json=body)
    assert (reply.status_code, "different numbers of rows" in reply.json()["error"]) == (400, True)


def test_index(live: LiveGateway) -> None:
    """The index has every version of every model that the caller may use, and no other."""
    listed = httpx.post(f"{live.url}/v2/repository/index").json()
    assert [one for one in listed if one["name"] == "versions"] == [
        {"name": "versions", "version": version, "state": "READY", "reason": ""} for version in ("2", "1")
    ]
    names = {one["name"] for one in listed}
    assert "FP32" in names
    assert not names & {"locked", "other"}
    assert "locked" in {one["name"] for one in httpx.post(f"{live.url}/v2/repository/index", headers=LOCKED).json()}


def test_load_and_unload(live: LiveGateway) -> None:
    """A model comes by call, again without harm, answers, and goes."""
    url = f"{live.url}/v2/repository/models/extra"
    for _ in range(2):
        reply = httpx.post(f"{url}/load", json={}, headers=CONTROL)
        assert (reply.status_code, reply.content) == (200, b"")
    request = infer(tensor("FP32", [1], [2.5]))
    reply = httpx.post(f"{live.url}/v2/models/extra/infer", json=request)
    assert reply.json() == answer("extra", tensor("FP32", [1], [2.5], "y"))
    assert httpx.post(f"{url}/unload", headers=CONTROL).status_code == 200
    assert httpx.post(f"{live.url}/v2/models/extra/infer", json=request).status_code == 404
