"""Tensors to TF Serving and v2 servers: every dtype there and back without a change, and answers that cannot be."""

import struct
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from remote_scene import SOURCE
from scene import on_loop
from upstream import Exchange, Script, always, answer, upstream

from backends.remote import Config, load
from gateway.config import convert
from gateway.errors import InferenceFailed, LoadFailed
from gateway.types import InferenceRequest

VALUES: dict[str, Any] = {
    "float16": np.array([[0.1, -65504]], np.float16),
    "float32": np.array([[0.1, np.nan], [np.inf, -1e-45]], np.float32),
    "float64": np.array([0.1, -np.inf], np.float64),
    "bfloat16": np.array([0.1, 3e38], ml_dtypes.bfloat16).astype(np.float32),
    "int64": np.array([[2**63 - 1, -(2**63)]], np.int64),
    "uint64": np.array([2**64 - 1, 1], np.uint64),
    "int8": np.array([-128, 127], np.int8),
    "uint16": np.array([65535], np.uint16),
    "bool": np.array([[True], [False]]),
    "string": np.array([["é", "", "a\n"]], object),
}


def mirror(kind: str, *, binary: bool) -> Script:
    """A server that answers with what it was sent, as y."""

    async def script(exchange: Exchange) -> None:
        if exchange.path == "/v2":
            await exchange.send(answer({"extensions": ["binary_tensor_data"] if binary else []}))
        elif exchange.method == "GET":
            await exchange.send(answer({}))
        elif kind == "tfserving":
            x = exchange.body.partition(b'"inputs":{"x":')[2].removesuffix(b"}}")
            await exchange.send(answer(b'{"outputs": ' + x + b"}"))
        else:
            size = int(exchange.headers.get("inference-header-content-length", len(exchange.body)))
            head = (
                exchange.body[:size]
                .replace(b'"inputs"', b'"outputs"')
                .replace(b'"outputs":[{"name":"y"', b'"z":[{"name":"y"')
            )
            head = head.replace(b'"name":"x"', b'"name":"y"')
            extra = {"inference_header_content_length": str(len(head))} if binary else {}
            await exchange.send(answer(head + exchange.body[size:], **extra))

    return script


def settings(kind: str, url: str, dtype: str) -> Config:
    tensor = {"dtype": dtype}
    told = {"kind": kind, "urls": [url], "inputs": {"x": tensor}, "outputs": {"y": tensor}, "retries": 0}
    return convert(told, Config, "model.toml")


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize(("kind", "binary"), [("tfserving", False), ("v2", False), ("v2", True)])
@on_loop
async def test_there_and_back(kind: str, binary: bool, dtype: str) -> None:
    """The same bits come back, whatever they are carried in."""
    async with upstream(mirror(kind, binary=binary)) as server:
        backend = await load(SOURCE, settings(kind, server.url, dtype))
        sent = VALUES[dtype]
        found = (await backend.infer(InferenceRequest({"x": sent}))).outputs["y"]
        await backend.close()
    assert (found.dtype, found.shape) == (sent.dtype, sent.shape)
    assert found.tolist() == sent.tolist() if dtype == "string" else found.tobytes() == sent.tobytes()


@pytest.mark.parametrize(("kind", "binary"), [("tfserving", False), ("v2", True)])
@on_loop
async def test_binary_strings(kind: str, binary: bool) -> None:
    """Bytes that are no text survive."""
    async with upstream(mirror(kind, binary=binary)) as server:
        backend = await load(SOURCE, settings(kind, server.url, "string"))
        sent = np.array([b"\xff\x00"], object)
        assert (await backend.infer(InferenceRequest({"x": sent}))).outputs["y"].tolist() == [b"\xff\x00"]
        await backend.close()


@pytest.mark.parametrize(
    ("kind", "dtype", "body"),
    [
        ("tfserving", "float32", {"predictions": [1]}),
        ("tfserving", "float32", {"outputs": [[1], [1, 2]]}),
        ("tfserving", "float32", {"outputs": ["a"]}),
        ("tfserving", "float32", {"outputs": [None]}),
        ("tfserving", "int64", {"outputs": [1.5]}),
        ("tfserving", "int8", {"outputs": [200]}),
        ("tfserving", "uint8", {"outputs": [-1]}),
        ("tfserving", "bool", {"outputs": [1]}),
        ("tfserving", "string", {"outputs": [{"b64": "!"}]}),
        ("tfserving", "string", {"outputs": [["a"], "b"]}),
        ("tfserving", "float32", b"[" * 100_000),
        ("v2", "float32", {"outputs": [{"name": "y", "datatype": "FP64", "shape": [1], "data": [1]}]}),
        ("v2", "float32", {"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1]}]}),
        ("v2", "float32", {"outputs": [{"name": "z", "datatype": "FP32", "shape": [1], "data": [1]}]}),
        ("v2", "float32", {"outputs": 3}),
    ],
)
@on_loop
async def test_answers_that_cannot_be(kind: str, dtype: str, body: Any) -> None:
    """An answer that is not what was declared is a failure of the model, and never silently other numbers."""
    async with upstream(always(answer(body))) as server:
        backend = await load(SOURCE, settings(kind, server.url, dtype))
        with pytest.raises(InferenceFailed):
            await backend.infer(
                InferenceRequest({"x": np.array(["a"], object) if dtype == "string" else np.zeros(1, dtype)})
            )
        await backend.close()


@on_loop
async def test_lengths_that_lie() -> None:
    """Binary strings whose lengths lead beyond their end are refused."""
    raw = struct.pack("<I", 1 << 30) + b"a"
    told = {"name": "y", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(raw)}}
    head = msgspec.json.encode({"outputs": [told]})
    script = always(answer(head + raw, inference_header_content_length=str(len(head))))
    async with upstream(script) as server:
        backend = await load(SOURCE, settings("v2", server.url, "string"))
        with pytest.raises(InferenceFailed):
            await backend.infer(InferenceRequest({"x": np.array(["a"], object)}))
        await backend.close()


@on_loop
async def test_metadata_that_nobody_tells() -> None:
    """A server without metadata needs them in model.toml, as the error says."""
    async with upstream(always(answer({"outputs": []}))) as server:
        config = convert({"kind": "v2", "urls": [server.url]}, Config, "model.toml")
        with pytest.raises(LoadFailed, match=r"give them in \[remote.inputs.NAME\]"):
            await load(SOURCE, config)
