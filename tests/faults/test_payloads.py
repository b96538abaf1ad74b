"""Broken payloads in every dialect, case by case of docs/reliability.md: the caller is told what is wrong."""

import io
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import psutil
import pytest
from live import LiveGateway, gateway, put_echo
from PIL import Image

DEMO = Path(__file__).parents[2] / "configs" / "models"
JSON, CSV, LINES, RECORDS = "application/json", "text/csv", "application/jsonlines", "application/x-recordio-protobuf"
TFS, IRIS = "/v1/models/half_plus_three:predict", "/v1/models/iris:predict"
SELDON, SAGEMAKER = "/seldon/ns/iris/api/v1.0/predictions", "/services/iris/invocations"
V2, CHAT = "/v2/models/half_plus_three/infer", "/v1/chat/completions"
X = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
ASKED = {"model": "tinychat", "messages": [{"role": "user", "content": "hi"}]}


class Case(NamedTuple):
    """A body, and how it is answered."""

    row: int
    path: str
    body: object
    status: int
    words: str = ""
    """What the answer must say."""
    type: str = JSON


def _v2(**fields: Any) -> object:
    return {"inputs": [{**X, **fields}]}


def _tensor(shape: object, values: object) -> object:
    return {"data": {"tensor": {"shape": shape, "values": values}}}


def _picture(mode: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (8, 8)).save(file, **options)
    return file.getvalue()


def _giant() -> bytes:
    """The head of a PNG of 50,000 x 50,000 pixels."""
    small = _picture("L", format="PNG")
    told = small[12:16] + (50_000).to_bytes(4, "big") * 2 + small[24:29]
    return small[:12] + told + zlib.crc32(told).to_bytes(4, "big") + small[33:]


OUTWARD = (
    b'<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    b'<svg xmlns="http://www.w3.org/2000/svg" width="28" height="28"><g id="&a;"/></svg>'
)
"""A drawing that asks for a file."""

CASES = (
    Case(18, TFS, b'{"instances":' + b"[" * 250_000 + b"]" * 250_000 + b"}", 400, "nested too deeply"),
    Case(18, V2, b'{"inputs":' + b"[" * 250_000, 400),
    Case(18, SELDON, b'{"data":{"ndarray":' + b"[" * 250_000, 400),
    Case(18, SAGEMAKER, b"[" * 250_000, 400),
    Case(18, CHAT, b'{"messages":' + b"[" * 250_000, 413, "65536 objects and lists"),
    Case(19, V2, b'{"inputs":[{"name":"x","shape":[20000000],"datatype":"FP32","data":['
         + b"1," * 20_000_000 + b"1]}]}", 413, "16777216"),
    Case(20, TFS, b'{"instances":[1,]}', 400, "offset: 16"),
    Case(20, TFS, b'{"instances":["\\ud800"]}', 400, "offset: 15"),
    Case(20, IRIS, b'{"instances":["\xff"]}', 400, "element: 0"),
    Case(20, V2, b'{"inputs":[{},]}', 400),
    Case(20, SELDON, b'{"data":{"ndarray":[1,]}}', 400),
    Case(20, CHAT, b'{"model":"tinychat","messages":[1,]}', 400, "character"),
    Case(21, TFS, {"instances": [1], "inputs": [1]}, 400, "expecting only one of 'inputs' or 'instances'"),
    Case(21, TFS, {}, 400, "Missing 'inputs' or 'instances' key"),
    Case(21, TFS, {"instances": []}, 400, "No values in 'instances' array"),
    Case(21, TFS, {"instances": [[1, 2], [3]]}, 400, "element: 1 of 'instances'"),
    Case(21, IRIS, {"instances": [[1, 2, 3, 4], [1, 2, 3, "a"]]}, 400, "element: 1 of 'instances'"),
    Case(21, SELDON, {"data": {"ndarray": [[1, 2], [3]]}}, 400, "same length"),
    Case(21, SELDON, {"data": {"ndarray": [[1, 2, 3, "x"]]}}, 400, "'x'"),
    Case(22, "/v1/models/small:predict", {"instances": [1, 300]}, 400),
    Case(22, "/v1/models/small:predict", {"instances": [1.5]}, 400),
    Case(22, "/v1/models/large:predict", {"instances": [2**63]}, 400),
    Case(22, "/v2/models/small/infer", _v2(datatype="UINT8", data=[300, 1]), 400, "300"),
    Case(22, "/v2/models/large/infer", _v2(datatype="INT64", data=[2**63, 1]), 400, "9223372036854775808"),
    Case(22, TFS, {"instances": ["1.0"]}, 400, "String is not of expected type"),
    Case(22, V2, _v2(data=["1", "2"]), 400, "element 0"),
    Case(23, TFS, b'{"instances":[NaN,Infinity]}', 200, '[NaN,Infinity]'),
    Case(23, CHAT, json.dumps({**ASKED, "temperature": float("nan")}).encode(), 400, "not JSON"),
    Case(23, SAGEMAKER, b"1,,3,4\n", 200, "null", CSV),
    Case(24, V2, _v2(shape=[2**31, 2**31]), 413, "16777216"),
    Case(24, V2, _v2(shape=[-1]), 400, "shape"),
    Case(24, V2, _v2(shape=[1] * 300), 400, "64"),
    Case(24, V2, _v2(shape=[3]), 400, "holds 3 elements"),
    Case(24, V2, _v2(shape=[0], data=[]), 200, '"shape":[0]'),
    Case(24, SELDON, _tensor([2**31, 2**31], [1]), 400),
    Case(24, SELDON, _tensor([-1, -1], [1]), 400),
    Case(25, "/v1/models/text:predict", {"instances": [{"b64": "YQ=="}, {"b64": "Y"}]}, 400, "element: 1"),
    Case(25, "/v1/models/text:predict", {"instances": [{"b64": "@@@@"}]}, 400),
    Case(26, "/services/mnist/invocations", _giant(), 400, "pixels", "image/png"),
    Case(26, "/services/mnist/invocations", b'<!ENTITY a SYSTEM "file:///etc/passwd">', 400, "no PNG", "image/png"),
    Case(26, "/services/mnist/invocations", OUTWARD, 400, "entit", "image/svg+xml"),
    Case(27, SAGEMAKER, b"1,2,3,4\n1,2,3\n", 400, "row 2: expected 4 columns, got 3", CSV),
    Case(27, SAGEMAKER, b"a,b,c,d\n1,2,3,4\n", 400, "row 1, column 1", CSV),
    Case(27, SAGEMAKER, b"1;2;3;4\n", 400, "row 1: expected 4 columns, got 1", CSV),
    Case(27, SAGEMAKER, b"1,2,3,4\r5,6,7,8\r", 400, "a CR alone does not end a line", CSV),
    Case(27, SAGEMAKER, b"1," * 1_000_000 + b"1\n", 400, "expected 4 columns", CSV),
    Case(27, SAGEMAKER, b"", 400, "no rows", CSV),
    Case(28, SAGEMAKER, b'{"features":[1,2,3,4]}\n' * 999 + b'{"features":[1', 400, "line 1000", LINES),
    Case(28, SAGEMAKER, b'{"features":[1,2,3,4]}\n{"features":[1,2,3,4]}', 200, "species", LINES),
    Case(29, SAGEMAKER, bytes(8), 400, "record 1: no RecordIO magic", RECORDS),
    Case(29, SAGEMAKER, b"\x0a\x23\xd7\xce\xff\xff\x00\x00ab", 400, "record 1: the frame says 65535 bytes", RECORDS),
    Case(29, SAGEMAKER, b"\x0a\x23\xd7\xce\x02\x00\x00\x00ab\0", 400, "record 1", RECORDS),
    Case(30, SELDON, _tensor([2, 4], [1, 2]), 400, "size 2 into shape [2,4]"),
    Case(30, SELDON, {}, 400, "Invalid request data type"),
    Case(31, CHAT, {**ASKED, "model": "nope"}, 404, "model_not_found"),
    Case(31, CHAT, {**ASKED, "n": 10**6}, 400, '"param":"n"'),
    Case(31, CHAT, {**ASKED, "max_tokens": -1}, 400, '"param":"max_tokens"'),
    Case(31, CHAT, {**ASKED, "temperature": 9}, 400, '"param":"temperature"'),
    Case(31, CHAT, {**ASKED, "messages": []}, 400, '"param":"messages"'),
    Case(32, TFS, {"signature_name": "nope", "instances": [1]}, 400, '"nope'),
    Case(32, V2, {**_v2(), "outputs": [{"name": "no"}]}, 400, "no output 'no'"),
    Case(32, V2, {"inputs": [X, X]}, 400, "given twice"),
    Case(33, "/v1/models/text:predict", {"instances": ["a\0b\U0001f600"]}, 200),
)  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    folder = tmp_path_factory.mktemp("models")
    for name, dtype in (("small", "uint8"), ("large", "int64"), ("text", "string")):
        put_echo(folder, name, f'[echo.inputs.x]\ndtype = "{dtype}"\nshape = [-1]\n')
    for name in ("iris", "half_plus_three", "mnist", "tinychat"):
        shutil.copytree(DEMO / name, folder / name)

    with gateway("--models", folder, "--device", "cpu") as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"row{case.row}-{CASES.index(case)}")
def test_broken_payloads_are_told_what_is_wrong(live: LiveGateway, case: Case) -> None:
    """The status and the words of each; then the gateway is as well as before, and logs one line of the request."""
    process = psutil.Process(live.process.pid)
    before = process.memory_info().rss
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    mark = f"payload-{CASES.index(case)}"
    headers = {"content-type": case.type, "x-request-id": mark}
    reply = httpx.post(f"{live.url}{case.path}", content=body, headers=headers, timeout=30)
    assert case.status == reply.status_code, reply.text
    assert case.words in reply.text.replace('\\"', '"'), reply.text
    assert "Traceback" not in reply.text
    if case.row == 33:
        assert reply.json()["predictions"] == case.body["instances"]
    rows = np.array([1.0, -2.5, 7.0], np.float32)
    good = httpx.post(f"{live.url}{TFS}", json={"instances": rows.tolist()})
    assert (rows / 2 + 3).tolist() == good.json()["predictions"]
    live.wait_for_metric("tensorgate_requests_in_flight", 0)
    live.wait_for_log(f'"id":"{mark}"')
    assert live.errors().count(f'"id":"{mark}"') == 1
    assert process.memory_info().rss - before < 600 << 20


NAMES = ("..%2f..%2fetc", "%252e%252e", "x;..", "a%00b", "x" * 10_000, "%EF%BC%8E%EF%BC%8E", "%D1%96ris", "..")


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("path", ["/v1/models/{}:predict", "/v2/models/{}/infer", "/endpoints/{}/invocations"])
def test_odd_names_are_nobodys(live: LiveGateway, path: str, name: str) -> None:
    """A name that could lead elsewhere is that of no model: 404 or 400, and no file is named in the answer."""
    reply = httpx.post(f"{live.url}{path.format(name)}", json={"instances": [1]})
    assert reply.status_code in (400, 404), reply.text
    assert str(DEMO.parent) not in reply.text
    assert len(reply.content) < 4096


def test_accept_and_content_type_are_negotiated(live: LiveGateway) -> None:
    """A type that is not read is 415, one that is not written 406, an unknown path 404, a wrong method 405."""

    def status(path: str, **headers: str) -> int:
        return httpx.post(f"{live.url}{path}", content=b"5.1,3.5,1.4,0.2", headers=headers).status_code

    assert status(SAGEMAKER, **{"content-type": "text/xml"}) == 415
    assert status(SAGEMAKER, **{"content-type": CSV, "accept": "image/png"}) == 406
    assert status("/nowhere/at/all") == 404
    refused = httpx.put(f"{live.url}{SAGEMAKER}")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
