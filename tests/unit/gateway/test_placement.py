"""Where a model runs makes no difference to its answers, and all the difference to what it can take along."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tinychat
from images import colours, encoded
from onnx_cases import DTYPE_IDENTITY
from pooled import install_grim, serving
from scene import put
from user_class import on_loop

from gateway import errors
from gateway.errors import GatewayError, InvalidTensor, NotReady
from gateway.interfaces import Backend
from gateway.models import Models
from gateway.types import InferenceRequest, InferenceResponse, TensorSpec

POOL = 'placement = "pool"\n'
IMAGE = """
[echo.inputs.x]
shape = [-1, 4, 5, 3]
[image]
layout = "nhwc"
scale = 0.0078125
mean = 1.0
"""
TEXTS = ["", "plain", "näïve \U0001f600", "a\0b", "\ud800"]


@pytest.fixture(scope="module")
def grim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The backend `grim` is installed, for this process and its workers."""
    folder = install_grim(tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        yield


def backend(models: Models, name: str) -> Backend:
    """The model's."""
    return models.resolve(name).backend


async def ask(models: Models, name: str = "grim", **parameters: Any) -> dict[str, Any]:
    """What the model answers, with its parameters."""
    response = await backend(models, name).infer(InferenceRequest({}, parameters=parameters))
    return {**response.parameters, **{key: value.tolist() for key, value in response.outputs.items()}}


others: set[int] = set()
"""Processes that were there before a test: gateways of other tests' fixtures."""


@pytest.fixture(autouse=True)
def _know_others() -> None:
    others.clear()
    others.update(workers())


def workers() -> set[int]:
    """The processes that this test has started."""
    return {child.pid for child in psutil.Process().children(recursive=True)} - others


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two tensors are equal to the last bit."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype == object:
        items = list(zip(one.ravel(), other.ravel(), strict=True))
        return all(type(left) is type(right) and left == right for left, right in items)
    return one.tobytes() == other.tobytes()


def values(spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes at random as numbers, NaN and infinities among them, or texts."""
    random = np.random.default_rng(7)
    if spec.dtype == "string":
        return np.resize(np.array(TEXTS[:4], object), shape)
    if spec.dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if spec.dtype == "bfloat16":
        return (random.integers(0, 1 << 15, shape).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(random.bytes(int(np.prod(shape)) * spec.numpy_dtype.itemsize), spec.numpy_dtype).reshape(shape)


# The same answers...


@on_loop
async def test_every_dtype_crosses(tmp_path: Path) -> None:
    """An ONNX model answers to the last bit as it does inline, for every dtype, small, large and empty."""
    for name, settings in {"inline": "", "pooled": POOL}.items():
        put(tmp_path / name / "model.toml", settings)
        (tmp_path / name / "1").mkdir()
        shutil.copy(DTYPE_IDENTITY / "all14.onnx", tmp_path / name / "1" / "model.onnx")
    async with serving(tmp_path) as models:
        inline, pooled = backend(models, "inline"), backend(models, "pooled")
        assert pooled.metadata.signatures == inline.metadata.signatures
        assert (inline.status.provider, pooled.status.provider) == ("CPU", "CPU")
        assert pooled.status.note.startswith("in 1 worker")
        specs = inline.metadata.signatures["serving_default"].inputs
        assert len(specs) == 14
        for shape in ((2, 3), (40, 300), (0, 3)):
            request = InferenceRequest({name: values(spec, shape) for name, spec in specs.items()})
            expected, told = await inline.infer(request), await pooled.infer(request)
            assert list(expected.outputs) == list(told.outputs)
            differing = [name for name, tensor in told.outputs.items() if not same(expected.outputs[name], tensor)]
            assert differing == []
        wanted = InferenceRequest(request.inputs, outputs=(list(expected.outputs)[3],))
        assert list((await pooled.infer(wanted)).outputs) == list(wanted.outputs)


@on_loop
async def test_streams_and_texts_cross(tmp_path: Path) -> None:
    """The echo's rows come one by one, more of them than may be under way; texts and bytes stay what they are."""
    settings = 'backend = "echo"\n%s[echo.inputs.x]\ndtype = "string"\n'
    put(tmp_path / "inline" / "model.toml", settings % "")
    put(tmp_path / "pooled" / "model.toml", settings % POOL)
    items = np.array([*TEXTS, *(bytes([number]) * number for number in range(40))], object)
    async with serving(tmp_path) as models:
        request = InferenceRequest({"x": items}, stream=True)
        expected = [part async for part in backend(models, "inline").stream(request)]
        told = [part async for part in backend(models, "pooled").stream(request)]
        assert len(told) == len(expected) == len(items)
        assert all(same(one.outputs["x"], other.outputs["x"]) for one, other in zip(expected, told, strict=True))


@on_loop
async def test_wrappers_go_along(tmp_path: Path) -> None:
    """The wrapper stands around the model in the worker, and its input takes images there too."""
    put(tmp_path / "inline" / "model.toml", f'backend = "echo"\n{IMAGE}')
    put(tmp_path / "pooled" / "model.toml", f'backend = "echo"\n{POOL}{IMAGE}')
    image = np.array([encoded(colours(4, 5))], object)
    async with serving(tmp_path) as models:
        inline, pooled = backend(models, "inline"), backend(models, "pooled")
        assert pooled.metadata.signatures["serving_default"].inputs["x"].media == "image"
        expected, told = (
            await inline.infer(InferenceRequest({"x": image})),
            await pooled.infer(InferenceRequest({"x": image})),
        )
        assert same(expected.outputs["x"], told.outputs["x"])
        with pytest.raises(InvalidTensor) as here:
            await inline.infer(InferenceRequest({"x": np.array([b"no image"], object)}))
        with pytest.raises(InvalidTensor) as there:
            await pooled.infer(InferenceRequest({"x": np.array([b"no image"], object)}))
        assert str(here.value) == str(there.value)


@on_loop
async def test_a_language_model_writes_from_a_worker(tmp_path: Path) -> None:
    """Its conversations, parameters and pieces cross, and conversations run side by side there."""
    for name, settings in {"inline": "", "pooled": POOL}.items():
        shutil.copytree(tinychat.FOLDER, tmp_path / name / "1")
        put(tmp_path / name / "model.toml", f'backend = "generate"\n{settings}[generate]\nslots = 2\n')
    async with serving(tmp_path) as models:
        inline, pooled = backend(models, "inline"), backend(models, "pooled")
        assert pooled.metadata.extras == inline.metadata.extras
        asked = tinychat.asked("hello", temperature=0, max_tokens=6)
        told = await asyncio.gather(pooled.infer(asked), pooled.infer(asked))
        assert [plain(one) for one in told] == [plain(await inline.infer(asked))] * 2
        parts = [part.outputs["text"].item() async for part in pooled.stream(asked)]
        assert "".join(parts) == told[0].outputs["text"].item()


def plain(response: InferenceResponse) -> Any:
    """The response, to be compared: all but its usage, which tells what was still known of requests before it."""
    outputs = {name: tensor.tolist() for name, tensor in response.outputs.items()}
    return outputs, json.loads(json.dumps(dict(response.parameters) | {"usage": None}))


# Errors...

FAILURES: dict[str, tuple[type[GatewayError], str, dict[str, Any]]] = {
    "InvalidTensor": (errors.InvalidTensor, "told so", {}),
    "InferenceFailed": (errors.InferenceFailed, "told so", {}),
    "Overloaded": (errors.Overloaded, "told so", {"retry_after": None}),
    "DeadlineExceeded": (errors.DeadlineExceeded, "told so", {"retry_after": None}),
    "SignatureNotFound": (errors.SignatureNotFound, "no such signature", {"signature": "odd"}),
    "UserError": (errors.UserError, "no", {"status": 418, "reason": "TEAPOT", "body": {"tea": True}}),
    "OutOfMemory": (errors.OutOfMemory, "no room", {"retry_after": 7.0}),
    "OddTensor": (errors.InvalidTensor, "odd", {}),
    "MemoryError": (errors.OutOfMemory, "there is not enough memory for this request", {"retry_after": None}),
    "KeyError": (errors.InferenceFailed, "internal error of the model: KeyError; the log has its reason", {}),
}
"""What the backend raises -> the class, text and details that arrive."""


@on_loop
async def test_errors_are_what_they_were(tmp_path: Path, grim: None) -> None:
    """An error arrives as its own class with all that it knows, and the worker that raised it stays."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}')
    async with serving(tmp_path) as models:
        before = workers()
        for do, (kind, text, details) in FAILURES.items():
            with pytest.raises(GatewayError) as caught:
                await ask(models, do=do)
            assert (type(caught.value), str(caught.value), vars(caught.value)) == (kind, text, details)
        assert workers() == before


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            'backend = "pyclass"\nplacement = "inline"',
            """m/model.toml: placement: 'pyclass' runs in workers of its own, never inline; use "auto" or "pool\"""",
        ),
        (
            'backend = "pyclass"\nplacement = "pool"\n[pool]',
            "m/model.toml: pool: there is no pool around this model; put its keys into [pyclass]",
        ),
        (
            'backend = "echo"\n[pool]',
            'm/model.toml: pool: there is no pool around this model; it goes with placement = "pool"',
        ),
        (f'backend = "echo"\n{POOL}[pool]\nreplica = 2', "m/model.toml: pool: (top level): Object contains unknown"),
        (f'backend = "echo"\n{POOL}[echo]\nsufix = "x"', "m/model.toml: echo: (top level): Object contains unknown"),
        (f'backend = "tvm"\n{POOL}', "m/model.toml: backend: no backend 'tvm'; there are: "),
        (f'backend = "echo"\n{POOL}[image]\nsize = [2, 2]\nlayout = "nhw"\nchannels = 3', "image: "),
        ('backend = "echo"\nplacement = "there"', "m/model.toml: placement: Invalid enum value 'there'"),
    ],
)
@on_loop
async def test_bad_settings(tmp_path: Path, settings: str, error: str) -> None:
    """What cannot be is told by file and key, also of what only the worker reads; nothing of it goes on running."""
    put(tmp_path / "m" / "model.toml", settings)
    put(tmp_path / "m" / "1" / "inference_service.py", "class inference_service:\n    pass\n")
    async with serving(tmp_path) as models:
        (told,) = models.describe()
        assert told.error.startswith(error)
        assert workers() == set()


@on_loop
async def test_own_workers_are_a_pool(tmp_path: Path) -> None:
    """A user's class may be said to run in a pool, which it does anyway."""
    put(tmp_path / "m" / "model.toml", f'backend = "pyclass"\n{POOL}')
    put(tmp_path / "m" / "1" / "inference_service.py", "class inference_service:\n    pass\n")
    async with serving(tmp_path) as models:
        assert backend(models, "m").status.provider == "python"


# Ends...


@on_loop
async def test_a_crash_takes_nothing_along(tmp_path: Path, grim: None) -> None:
    """A model that ends its process twice costs its caller an answer; it and its neighbours go on."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}')
    put(tmp_path / "still" / "model.toml", f'backend = "echo"\n{POOL}')
    async with serving(tmp_path) as models:
        first = (await ask(models))["pid"]
        for name in ("SIGKILL", "SIGFPE"):
            with pytest.raises(NotReady, match=f"worker was ended by {name} while it answered"):
                await ask(models, do=name)
            still = await backend(models, "still").infer(InferenceRequest({"x": np.ones(2, np.float32)}))
            assert still.outputs["x"].tolist() == [1.0, 1.0]
        assert (await ask(models))["pid"] not in (first, os.getpid())
        assert (await ask(models, do="once", mark=str(tmp_path / ".mark")))["pid"] != first


@on_loop
async def test_a_killed_worker_is_replaced(tmp_path: Path, grim: None) -> None:
    """Of two workers the other answers meanwhile; calls that the lost one had are made once more."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}[pool]\nreplicas = 2\n')
    async with serving(tmp_path) as models:
        assert backend(models, "grim").status.note == "in 2 workers; no CUDA here"
        waiting = [asyncio.create_task(ask(models, do="wait")) for _ in range(2)]
        lost = (await ask(models))["pid"]
        os.kill(lost, signal.SIGKILL)
        assert (await ask(models))["pid"] != lost
        while backend(models, "grim").status.note != "in 2 workers; no CUDA here":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


@on_loop
async def test_a_stream_half_told_is_not_begun_anew(tmp_path: Path, grim: None) -> None:
    """After the first part its reader is told of the end."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}')
    async with serving(tmp_path) as models:
        request = InferenceRequest({}, parameters={"parts": 5, "dies_at": 3}, stream=True)
        stream = aiter(backend(models, "grim").stream(request))
        assert [(await anext(stream)).outputs["part"].tolist() for _ in range(3)] == [[0], [1], [2]]
        with pytest.raises(NotReady, match="ended by SIGKILL"):
            await anext(stream)


@on_loop
async def test_leaving_ends_the_work(tmp_path: Path, grim: None) -> None:
    """A caller who leaves cancels the backend's call, or its stream; the worker stays."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}')
    async with serving(tmp_path) as models:
        first = await ask(models)
        task = asyncio.create_task(ask(models, do="wait"))
        await ask(models)  # it stands behind the other
        task.cancel()
        await asyncio.wait([task])
        assert await ask(models) == {**first, "cancelled": 1}
        stream: Any = backend(models, "grim").stream(InferenceRequest({}, parameters={"parts": 1 << 30}, stream=True))
        assert (await anext(stream)).outputs["part"].tolist() == [0]
        await stream.aclose()
        assert (await ask(models))["pid"] == first["pid"]


@on_loop
async def test_a_deadline_ends_a_model_that_hangs(tmp_path: Path, grim: None) -> None:
    """The caller is told in time, and a worker that is of no more use is replaced."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}[pool]\ndeadline_ms = 200\n')
    async with serving(tmp_path) as models:
        first = (await ask(models))["pid"]
        with pytest.raises(errors.DeadlineExceeded):
            await ask(models, do="hang")
        while psutil.pid_exists(first):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        successor = first
        while successor == first:
            with contextlib.suppress(errors.DeadlineExceeded):  # as long as it starts
                successor = (await ask(models))["pid"]


@on_loop
async def test_status_is_the_workers(tmp_path: Path, grim: None) -> None:
    """What becomes of the model in its worker shows in the gateway before the answer does."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}')
    async with serving(tmp_path) as models:
        await ask(models, do="fall back")
        status = backend(models, "grim").status
        assert (status.provider, status.note, status.fallbacks) == ("CPU", "in 1 worker; CUDA failed", 1)


@on_loop
async def test_unloading_leaves_no_process(tmp_path: Path, grim: None) -> None:
    """Not even one that hangs."""
    put(tmp_path / "grim" / "model.toml", f'backend = "grim"\n{POOL}[pool]\nreplicas = 2\n')
    async with serving(tmp_path) as models:
        assert len(workers()) == 2
        hanging = asyncio.create_task(ask(models, do="hang"))
        await asyncio.sleep(0.1)
        shutil.rmtree(tmp_path / "grim")
        await models.refresh()
        await models.refresh()
        await models.drained()
        assert workers() == set()
        with pytest.raises(NotReady, match="being unloaded"):
            await hanging
