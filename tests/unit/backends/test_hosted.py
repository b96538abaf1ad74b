"""A backend that another process has: what crosses the line, who shares what, and what a lost line ends."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from user_class import on_loop

from backends import hosted
from backends._hosting import Host
from backends._reception import Reception
from gateway.errors import LoadFailed, NotReady, Overloaded, UserError
from gateway.interfaces import Backend, BackendStatus, Upstream
from gateway.leases import Leases
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata


class Odd:
    """Does what the request's parameter says."""

    def __init__(self, name: str) -> None:
        upstream = {"upstream": Upstream("http://127.0.0.1:1", 1.0, 2.0)}
        self.metadata = ModelMetadata(name, 1, "odd", {}, extras={"has": ["predict"], **upstream})
        self.status = BackendStatus("CPU")
        self.runs_at_once = 3
        self.nodes = (1, 1)
        self.process_bytes = 5
        self.cpu_seconds = 0.5
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.sent = 0
        self.closed = asyncio.Event()

    def scale(self, nodes: int) -> None:
        self.nodes = (nodes, nodes)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        do = request.parameters.get("do")
        if do == "wait":
            self.begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if do == "refuse":
            raise Overloaded("full", 3.0)
        if do == "told":
            raise UserError("no", 418, "TEAPOT", {"a": 1})
        outputs: dict[str, Any] = dict(request.inputs)
        return InferenceResponse(outputs, {"deadline": request.deadline, "wanted": list(request.outputs)})

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        try:
            for number in range(request.parameters["parts"]):
                self.sent += 1
                yield InferenceResponse({"n": np.array([number])})
        finally:
            self.cancelled.set()

    async def close(self) -> None:
        self.closed.set()


Told = dict[str, Any]
Ask = Callable[..., Awaitable[hosted.HostedBackend]]


class Scene:
    """A process that has backends, and others that use them, on one event loop."""

    def __init__(self, address: Path) -> None:
        self.address = address
        self.opened: list[Odd] = []
        self.hosts: list[Host] = []
        self.fails = False
        self.leases = Leases(self._open)

    async def _open(self, told: Told) -> Backend:
        if self.fails:
            raise LoadFailed("it is broken")
        odd = Odd(told["order"]["source"]["name"])
        self.opened.append(odd)
        await asyncio.sleep(0)
        return odd

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Whoever connects is answered for the length of a block; then the lines are lost."""
        self.address.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self.address))
        reception = Reception(self.leases.take)

        def host() -> Host:
            self.hosts.append(reception.host())
            return self.hosts[-1]

        server = await asyncio.get_running_loop().create_unix_server(host, sock=listening)
        try:
            yield
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Lose every line."""
        for host in self.hosts:
            if host._transport is not None:
                host._transport.abort()

    async def join(self, name: str = "m", replicas: int = 1, fingerprint: str = "f") -> hosted.HostedBackend:
        order = {"source": {"name": name, "version": 1}, "tables": {"pyclass": {"replicas": replicas}}}
        backend = await hosted.join(name, self.address, {"order": order, "fingerprint": fingerprint})
        assert isinstance(backend, hosted.HostedBackend)
        return backend


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "s")


def request(do: str = "", **more: Any) -> InferenceRequest:
    return InferenceRequest({"x": np.arange(3.0)}, parameters={"do": do}, **more)


@on_loop
async def test_what_is_known_of_the_backend_and_of_calls_crosses(scene: Scene) -> None:
    """Metadata with the address of a server, tensors, parameters, deadlines, and errors with all that they say."""
    async with scene.receiving():
        backend = await scene.join()
        assert backend.metadata.extras["upstream"] == Upstream("http://127.0.0.1:1", 1.0, 2.0)
        assert backend.metadata.extras["has"] == ["predict"]
        assert (backend.runs_at_once, backend.process_bytes) == (3, 5)
        deadline = monotonic() + 1
        answer = await backend.infer(request(outputs=("y",), deadline=deadline))
        assert answer.outputs["x"].tolist() == [0.0, 1.0, 2.0]
        assert answer.parameters == {"deadline": deadline, "wanted": ["y"]}
        with pytest.raises(Overloaded, match="full") as full:
            await backend.infer(request("refuse"))
        assert full.value.retry_after == 3.0
        with pytest.raises(UserError) as told:
            await backend.infer(request("told"))
        assert (told.value.status, told.value.reason, told.value.body) == (418, "TEAPOT", {"a": 1})


@on_loop
async def test_those_who_ask_for_the_same_share_it_until_the_last_lets_go(scene: Scene) -> None:
    """The number of workers makes no other model; files that have changed do."""
    async with scene.receiving():
        one, two = await asyncio.gather(scene.join(), scene.join(replicas=2))
        other = await scene.join(fingerprint="g")
        assert len(scene.opened) == 2
        await one.close()
        assert (await two.infer(request())).outputs
        assert not scene.opened[0].closed.is_set()
        await two.close()
        await scene.opened[0].closed.wait()
        assert (await other.infer(request())).outputs
        assert not scene.opened[1].closed.is_set()


@on_loop
async def test_what_cannot_be_loaded_is_tried_again_by_the_next(scene: Scene) -> None:
    """Everybody who waited for it is told why."""
    async with scene.receiving():
        scene.fails = True
        told = await asyncio.gather(scene.join(), scene.join(), return_exceptions=True)
        assert [str(one) for one in told] == ["it is broken"] * 2
        assert all(isinstance(one, LoadFailed) for one in told)
        scene.fails = False
        assert (await (await scene.join()).infer(request())).outputs


@on_loop
async def test_a_caller_that_leaves_or_dies_ends_its_call_and_no_other(scene: Scene) -> None:
    """Whether it takes the call back, or its whole line is lost."""
    async with scene.receiving():
        one, two = await scene.join(), await scene.join()
        (odd,) = scene.opened
        call = asyncio.create_task(one.infer(request("wait")))
        await odd.begun.wait()
        call.cancel()
        await odd.cancelled.wait()
        odd.begun.clear()
        odd.cancelled.clear()
        call = asyncio.create_task(one.infer(request("wait")))
        await odd.begun.wait()
        await one.close()
        await odd.cancelled.wait()
        assert (await two.infer(request())).outputs
        with pytest.raises(NotReady):
            await call


@on_loop
async def test_a_stream_runs_no_further_ahead_than_it_is_read(scene: Scene) -> None:
    """And ends with its reader."""
    async with scene.receiving():
        backend = await scene.join()
        (odd,) = scene.opened
        many = InferenceRequest({}, parameters={"parts": 1000}, stream=True)
        assert [int(part.outputs["n"][0]) async for part in backend.stream(many)] == list(range(1000))
        odd.sent = 0
        odd.cancelled.clear()
        parts = backend.stream(many)
        await anext(parts)
        await asyncio.sleep(0.05)  # nothing may happen, which nothing can announce
        assert odd.sent < 20
        await parts.aclose()  # type: ignore[attr-defined]
        await odd.cancelled.wait()


@on_loop
async def test_a_lost_line_is_told_of_and_found_again(scene: Scene) -> None:
    """Calls get NotReady meanwhile, and the state says so; the next process may have its server somewhere else."""
    async with scene.receiving():
        backend = await scene.join()
        metadata = backend.metadata
        call = asyncio.create_task(backend.infer(request("wait")))
        await scene.opened[0].begun.wait()
    with pytest.raises(NotReady, match="workers has ended") as lost:
        await call
    assert lost.value.retry_after == 1.0
    assert not backend.status.ready
    with pytest.raises(NotReady):
        await backend.infer(request())
    async with scene.receiving():
        while not backend.status.ready:  # noqa: ASYNC110 - a status is looked at
            await asyncio.sleep(0.01)
        assert (await backend.infer(request())).outputs
        assert len(scene.opened) == 2
        assert metadata.extras["upstream"].url == "http://127.0.0.1:1"
        assert metadata.extras is backend.metadata.extras
        await backend.close()


@on_loop
async def test_how_many_workers_there_are_is_said_once_for_all(scene: Scene) -> None:
    """Of what is there, and of what comes."""
    async with scene.receiving():
        await scene.join("m")
        scene.leases.scale({"m": 4, "n": 2})
        await scene.join("n")
        assert {name: one.nodes for name, one in scene.leases.standing().items()} == {"m": (4, 4), "n": (2, 2)}
        await scene.leases.close()
        assert all(one.closed.is_set() for one in scene.opened)
