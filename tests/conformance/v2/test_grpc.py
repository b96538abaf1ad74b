"""The gRPC service against a live gateway."""

import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from conformance.v2 import models
from conformance.v2.conftest import free_port
from conformance.v2.stub import FIELDS, Stub, bits, connect, request
from live import LiveGateway, becomes, gateway

from adapters import _inference_pb2 as pb

ONE = ("x", "FP32", [1], [1.5])
CONTROL = (("authorization", "APPCODE control"),)


@pytest.fixture(scope="module")
def stub(live: LiveGateway, grpc_port: int) -> Iterator[Stub]:
    with connect(grpc_port) as stub:
        yield stub


def test_server(stub: Stub) -> None:
    """The server is alive, ready, and names itself as over HTTP."""
    assert stub("ServerLive").live
    assert stub("ServerReady").ready
    told = stub("ServerMetadata")
    assert (told.name, "binary_tensor_data" in told.extensions) == ("tensorgate", True)


@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [
        ("versions", "", True),
        ("versions", "2", True),
        ("versions", "stable", True),
        ("versions", "7", False),
        ("versions", "old", False),
        ("nope", "", False),
    ],
)
def test_model_ready(stub: Stub, name: str, version: str, ready: bool) -> None:
    """A model is ready if it, or the version that is named, answers; what does not exist is not."""
    assert stub("ModelReady", pb.ModelReadyRequest(name=name, version=version)).ready == ready


def test_model_metadata(stub: Stub) -> None:
    """A model tells its versions, platform, inputs and outputs."""
    told = stub("ModelMetadata", pb.ModelMetadataRequest(name="versions", version="1"))
    x = pb.ModelMetadataResponse.TensorMetadata(name="x", datatype="FP32", shape=[-1, 2])
    y = pb.ModelMetadataResponse.TensorMetadata(name="y", datatype="FP32", shape=[-1, 2])
    expected = pb.ModelMetadataResponse(
        name="versions", versions=["1", "2"], platform="onnxruntime_onnx", inputs=[x], outputs=[y]
    )
    assert told == expected


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False]),
        ("INT8", [-128, 127]),
        ("INT16", [-32768]),
        ("INT32", [-(2**31)]),
        ("INT64", [2**53 + 1, -(2**63)]),
        ("UINT8", [255]),
        ("UINT16", [65535]),
        ("UINT32", [2**32 - 1]),
        ("UINT64", [2**64 - 1]),
        ("FP32", [0.5, float("inf")]),
        ("FP64", [0.1]),
        ("BYTES", [b"", b"\xff", "é".encode()]),
        ("BYTES", []),
    ],
)
def test_typed_contents(stub: Stub, datatype: str, values: list[Any]) -> None:
    """Values in the typed fields come back in them."""
    shape = [len(values)]
    answer = stub("ModelInfer", request(datatype, ("x", datatype, shape, values), id="g-1"))
    assert (answer.model_name, answer.model_version, answer.id) == (datatype, "1", "g-1")
    (output,) = answer.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("x", datatype, shape)
    assert list(getattr(output.contents, FIELDS[datatype])) == values
    assert not answer.raw_output_contents


@pytest.mark.parametrize(
    ("datatype", "raw"),
    [
        ("BOOL", b"\0\1"),
        ("INT64", struct.pack("<2q", 2**53 + 1, -(2**63))),
        ("FP16", b"\1\0\0\x7c"),
        ("FP32", bits(float("nan"), -0.0)),
        ("BF16", b"\xc0\x3f\xc1\x7f"),
        ("BYTES", b"\1\0\0\0a\0\0\0\0"),
    ],
)
def test_raw_contents(stub: Stub, datatype: str, raw: bytes) -> None:
    """Raw values come back raw, bit by bit."""
    answer = stub("ModelInfer", request(datatype, ("x", datatype, [2], raw)))
    assert list(answer.raw_output_contents) == [raw]
    assert not answer.outputs[0].HasField("contents")


def test_outputs_in_order(stub: Stub) -> None:
    """Only the outputs that are named are given, in their order."""
    inputs = [("a", "FP32", [1, 2], [1.0, 2.0]), ("b", "INT64", [1], [3])]
    message = request("two", *inputs)
    message.outputs.add(name="b")
    assert [output.name for output in stub("ModelInfer", message).outputs] == ["b"]
    message.outputs.add(name="a")
    assert [output.name for output in stub("ModelInfer", message).outputs] == ["b", "a"]


def _message(**more: Any) -> pb.ModelInferRequest:
    message = request("FP32", ONE)
    message.MergeFrom(pb.ModelInferRequest(**more))
    return message


MISTAKES = {
    "unknown-model": (request("nope", ONE), "NOT_FOUND", "Model nope not found"),
    "unknown-version": (_message(model_version="9"), "NOT_FOUND", "version 9 not found"),
    "unknown-label": (_message(model_version="old"), "NOT_FOUND", "no label 'old'"),
    "nobody": (request("", ONE), "NOT_FOUND", "names no service"),
    "garbage": (b"\x0f", "INVALID_ARGUMENT", "no ModelInferRequest"),
    "cut": (b"\x0a\xff", "INVALID_ARGUMENT", "cut off"),
    "no-message": (b"\x0a\x04FP32\x2a\x02\xff\xff", "INVALID_ARGUMENT", "no ModelInferRequest"),
    "name-no-text": (b"\x0a\x01\xff", "INVALID_ARGUMENT", "not UTF-8"),
    "unknown-input": (request("FP32", ("z", "FP32", [1], [1])), "INVALID_ARGUMENT", "no input 'z'"),
    "no-input": (request("FP32"), "INVALID_ARGUMENT", 'missing "x"'),
    "datatype": (request("FP32", ("x", "INT64", [1], [1])), "INVALID_ARGUMENT", "is sent as INT64"),
    "negative": (request("FP32", ("x", "FP32", [-1], [1])), "INVALID_ARGUMENT", "from 0 on"),
    "overflow": (request("FP32", ("x", "FP32", [2**31, 2**31], [1])), "RESOURCE_EXHAUSTED", "more than the limit"),
    "too-few": (request("FP32", ("x", "FP32", [2], [1])), "INVALID_ARGUMENT", "fp32_contents has 1"),
    "raw-too-few": (request("FP32", ("x", "FP32", [2], b"abcd")), "INVALID_ARGUMENT", "are 8 bytes, but 4 came"),
    "int8-overflow": (request("INT8", ("x", "INT8", [1], [128])), "INVALID_ARGUMENT", "128 does not fit int8"),
    "fp16-typed": (request("FP16", ("x", "FP16", [0], b"")), "INVALID_ARGUMENT", "one entry for each"),
    "bad-output": (
        _message(outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="q")]),
        "INVALID_ARGUMENT",
        "no output 'q'",
    ),
    "raw-and-typed": (_message(raw_input_contents=[b"abcd"]), "INVALID_ARGUMENT", "not to be mixed"),
    "too-much-raw": (_message(raw_input_contents=[b"abcd", b""]), "INVALID_ARGUMENT", "one entry for each input"),
    "shared-memory": (
        _message(parameters={"shared_memory_region": pb.InferParameter(string_param="r")}),
        "INVALID_ARGUMENT",
        "not served",
    ),
    "other-type": (request("other", ONE), "NOT_FOUND", "tfserving calls only"),
    "locked": (request("locked", ONE), "UNAUTHENTICATED", "needs a key"),
}
MISTAKES["fp16-typed"] = (
    pb.ModelInferRequest(model_name="FP16", inputs=[{"name": "x", "datatype": "FP16", "shape": [1]}]),
    "INVALID_ARGUMENT",
    "raw_input_contents only",
)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(stub: Stub, name: str) -> None:
    """A mistake is answered with its code and a text that helps."""
    message, code, text = MISTAKES[name]
    found = stub.refused("ModelInfer", message)
    assert (found[0], text in found[1]) == (code, True), found


def test_many_small_fields(stub: Stub) -> None:
    """A message of more fields than any request has is refused before it is parsed."""
    code, text = stub.refused("ModelInfer", b"\x0a\x04FP32" + b"\x2a\x00" * 100_000)
    assert (code, "fields" in text) == ("RESOURCE_EXHAUSTED", True)
    inner = b"\x22\x00" * 50_000
    code, text = stub.refused("ModelInfer", b"\x0a\x04FP32\x2a" + b"\xa0\x8d\x06" + inner)
    assert (code, "fields" in text) == ("RESOURCE_EXHAUSTED", True)


def test_message_over_the_limit(stub: Stub) -> None:
    """A message over body_bytes is refused, also one that is small until it is decompressed."""
    big = request("FP32", ("x", "FP32", [1 << 20], bytes(4 << 20)))
    assert stub.refused("ModelInfer", big)[0] == "RESOURCE_EXHAUSTED"
    assert stub.refused("ModelInfer", big, compression=grpc.Compression.Gzip)[0] == "RESOURCE_EXHAUSTED"


def test_compressed(stub: Stub) -> None:
    """A compressed message is read."""
    answer = stub("ModelInfer", request("FP32", ONE), compression=grpc.Compression.Gzip)
    assert list(answer.outputs[0].contents.fp32_contents) == [1.5]


@pytest.mark.parametrize("key", [("authorization", "Bearer opensesame"), ("x-tensorgate-key", "opensesame")])
def test_key_in_metadata(stub: Stub, key: tuple[str, str]) -> None:
    """A service's key travels in the metadata."""
    assert stub("ModelInfer", request("locked", ONE), metadata=(key,)).model_name == "locked"


def test_service_in_metadata(stub: Stub) -> None:
    """A request without a model's name means the service that the metadata names."""
    answer = stub("ModelInfer", request("", ONE), metadata=(("x-tensorgate-service", "FP32"),))
    assert answer.model_name == "FP32"


def test_request_id(stub: Stub, live: LiveGateway) -> None:
    """The request's id is in the trailing metadata and in the log, which names the client's address."""
    call = stub.later("ModelInfer", request("FP32", ONE), metadata=(("x-request-id", "mine-7"),))
    assert ("x-request-id", "mine-7") in call.trailing_metadata()
    live.wait_for_log('"mine-7","peer":"127.0.0.1","method":"GRPC"')


def test_unknown_method(stub: Stub) -> None:
    """A method that nobody has is unimplemented."""
    assert stub.refused("ModelStreamInfer")[0] == "UNIMPLEMENTED"


def test_health_check(stub: Stub) -> None:
    """gRPC's own health check says that the server serves."""
    check = stub.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"", wait_for_ready=True) == b"\x08\x01"


def test_not_over_http(live: LiveGateway) -> None:
    """The service's paths are no paths of the HTTP port."""
    assert httpx.post(f"{live.url}/inference.GRPCInferenceService/ServerLive").status_code == 404


def test_repository(stub: Stub) -> None:
    """A model comes by call, is listed, answers, and goes; without the key it does not."""
    load = pb.RepositoryModelLoadRequest(model_name="extra")
    assert stub.refused("RepositoryModelLoad", load)[0] == "UNAUTHENTICATED"
    stub("RepositoryModelLoad", load, metadata=CONTROL)
    listed = stub("RepositoryIndex", pb.RepositoryIndexRequest(ready=True)).models
    row = pb.RepositoryIndexResponse.ModelIndex(name="extra", version="1", state="READY")
    assert row in listed
    answer = stub("ModelInfer", request("extra", ONE))
    assert list(answer.outputs[0].contents.fp32_contents) == [1.5]
    stub("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="extra"), metadata=CONTROL)
    assert stub.refused("ModelInfer", request("extra", ONE))[0] == "NOT_FOUND"


def test_repository_refuses(stub: Stub) -> None:
    """What a load cannot do is said."""
    url = {"url": pb.ModelRepositoryParameter(string_param="/etc")}
    load = pb.RepositoryModelLoadRequest(model_name="extra", parameters=url)
    assert stub.refused("RepositoryModelLoad", load, metadata=CONTROL)[0] == "PERMISSION_DENIED"
    config = {"config": pb.ModelRepositoryParameter(string_param="{}")}
    load = pb.RepositoryModelLoadRequest(model_name="extra", parameters=config)
    assert stub.refused("RepositoryModelLoad", load, metadata=CONTROL)[0] == "INVALID_ARGUMENT"


def test_deadline(stub: Stub, live: LiveGateway) -> None:
    """A call that is late ends at its deadline, and its work here with it."""
    started = time.monotonic()
    assert stub.refused("ModelInfer", request("slow", ONE), timeout=0.2)[0] == "DEADLINE_EXCEEDED"
    assert time.monotonic() - started < 2
    live.wait_for_metric("tensorgate_requests_in_flight", 0, seconds=2)


def test_cancel(stub: Stub, live: LiveGateway) -> None:
    """A call that its client gives up is given up here."""
    call = stub.later("ModelInfer", request("slow", ONE))
    live.wait_for_metric("tensorgate_requests_in_flight", 1)
    call.cancel()
    live.wait_for_metric("tensorgate_requests_in_flight", 0, seconds=2)


# Gateways of their own...


def _serve(folder: Path, port: int, more: str = "") -> Path:
    models.write(folder / "models")
    config = folder / "config.toml"
    config.write_text(f'models_dir = "models"\n[gateway]\ndevice = "cpu"\ngrpc_port = {port}\n{more}', "utf-8")
    return config


def test_drain(tmp_path: Path) -> None:
    """After SIGTERM a call in flight is answered, new ones are not, and the process ends well."""
    port = free_port()
    with gateway(_serve(tmp_path, port)) as live, connect(port) as stub:
        live.wait_until("/readyz", 200)
        call = stub.later("ModelInfer", request("slow", ONE))
        live.wait_for_metric("tensorgate_requests_in_flight", 1)
        live.process.send_signal(signal.SIGTERM)
        answer = call.result(timeout=30)
        assert list(answer.outputs[0].contents.fp32_contents) == [1.5]
        assert live.stop() == 0


def test_drain_cut_short(tmp_path: Path) -> None:
    """A second SIGTERM ends a call in flight at once."""
    port = free_port()
    with gateway(_serve(tmp_path, port)) as live, connect(port) as stub:
        live.wait_until("/readyz", 200)
        call = stub.later("ModelInfer", request("slow", ONE))
        live.wait_for_metric("tensorgate_requests_in_flight", 1)
        live.process.send_signal(signal.SIGTERM)
        assert becomes(lambda: "draining" in httpx.get(f"{live.url}/readyz").text, 5)
        started = time.monotonic()
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(10) == 0
        assert time.monotonic() - started < 2
        assert call.exception(timeout=5) is not None


@pytest.mark.parametrize(
    ("more", "text"),
    [("", "cannot listen on 127.0.0.1:"), ('protocols = ["tfserving"]\n', "none of the protocols that are on")],
)
def test_port_cannot_be_had(tmp_path: Path, live: LiveGateway, grpc_port: int, more: str, text: str) -> None:
    """A port that is taken, or that nobody would answer on, ends the start with a reason."""
    command = [sys.executable, "-m", "gateway", "serve", _serve(tmp_path, grpc_port, more), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, text in done.stderr) == (1, True), done.stderr
