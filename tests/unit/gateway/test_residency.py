"""The budget of the models' memory: who makes room, who waits, and who is refused."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from scene import on_loop

from gateway.errors import LoadFailed, ModelNotReady, OutOfMemory, Overloaded
from gateway.interfaces import Backend, BackendStatus
from gateway.modelcost import Claim
from gateway.residency import Bounds, ModelMemory, Resident
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata

REQUEST = InferenceRequest({})


class Machine:
    """Stands where the memory is: each open backend takes what its model takes."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.open: list[str] = []
        self.loads: list[str] = []
        self.gate: asyncio.Event | None = None
        self.failure: Exception | None = None
        self.version = 1
        self.extras: dict[str, str] = {}

    def resident(self) -> int:
        return sum(self.sizes[name] for name in self.open)

    async def load(self, name: str) -> Backend:
        self.loads.append(name)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.open.append(name)
        return Fake(self, name)


class Fake:
    """A backend that answers when it may."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.metadata = ModelMetadata(name, machine.version, "fake", {}, extras=machine.extras)
        self.status = BackendStatus("CPU", "")
        self.machine = machine
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        await self.may_answer.wait()
        assert self.metadata.name in self.machine.open, "it was closed under a request"
        return InferenceResponse({})

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        for _ in range(2):
            yield await self.infer(request)

    async def close(self) -> None:
        self.machine.open.remove(self.metadata.name)


class Room:
    """A memory with models in it."""

    def __init__(self, budget: int, **bounds: float) -> None:
        self.machine = Machine()
        self.memory = ModelMemory(Bounds(budget, **bounds), self.machine.resident)  # type: ignore[arg-type]
        self.memory._kinds.add("")  # the first load of a kind is measured otherwise

    async def put(self, name: str, size: int, **claim: int) -> Resident:
        self.machine.sizes[name] = size
        return await self.memory.admit(Claim(name, 1, **claim), lambda: self.machine.load(name))  # type: ignore[arg-type]

    async def settled(self) -> set[str]:
        """The models in memory once nothing is being closed."""
        while leaving := [one.leaving for one in self.memory.residents if one.leaving is not None]:
            await asyncio.wait(leaving)
        return set(self.machine.open)


def _backend(resident: Resident) -> Fake:
    assert isinstance(resident.backend, Fake)
    return resident.backend


@on_loop
async def test_the_one_unused_longest_makes_room() -> None:
    """A load past the budget unloads the least recently used version, which the next request loads again."""
    room = Room(250)
    first, second = await room.put("a", 100), await room.put("b", 100)
    await first.infer(REQUEST)
    await room.put("c", 100)
    assert await room.settled() == {"a", "c"}
    assert second.metadata.name == "b"
    assert second.status.note == "unloaded; the next request loads it"
    await second.infer(REQUEST)
    assert await room.settled() == {"b", "c"}
    assert room.memory.evictions == {("b", "room"): 1, ("a", "room"): 1}
    assert room.memory.reloads == {"b": 1}


@on_loop
async def test_many_who_wait_cause_one_load() -> None:
    """Requests that come while a version is loaded again wait for that load, and all are answered."""
    room = Room(150)
    first = await room.put("a", 100)
    await room.put("b", 100)
    await room.settled()
    answers = await asyncio.gather(*(first.infer(REQUEST) for _ in range(20)))
    assert len(answers) == 20
    assert room.machine.loads == ["a", "b", "a"]


@on_loop
async def test_a_version_in_use_never_goes() -> None:
    """Who needs room waits until the last request has left the version that may go."""
    room = Room(150)
    first = await room.put("a", 100)
    backend = _backend(first)
    backend.may_answer.clear()
    running = asyncio.create_task(first.infer(REQUEST))
    await asyncio.sleep(0)
    coming = asyncio.create_task(room.put("b", 100, file_bytes=100))
    done, _ = await asyncio.wait([coming], timeout=0.05)
    assert not done
    assert room.machine.open == ["a"]
    backend.may_answer.set()
    await running
    await coming
    assert await room.settled() == {"b"}


@on_loop
async def test_a_stream_keeps_its_version() -> None:
    """A version stays until the last part of a stream has been taken."""
    room = Room(150)
    first = await room.put("a", 100)
    stream = first.stream(REQUEST)
    await anext(stream)
    coming = asyncio.create_task(room.put("b", 100, file_bytes=100))
    done, _ = await asyncio.wait([coming], timeout=0.05)
    assert not done
    assert room.machine.open == ["a"]
    await stream.aclose()  # type: ignore[attr-defined]
    await coming
    assert await room.settled() == {"b"}


@on_loop
async def test_a_pinned_version_stays() -> None:
    """A pinned version never makes room, and what does not fit beside it is refused with the reason."""
    room = Room(150)
    pinned = await room.put("a", 100, pinned=True)
    with pytest.raises(OutOfMemory, match=r"b version 1 takes 100 bytes, which does not fit .* 100 bytes of pinned"):
        await room.put("b", 100, declared_bytes=100)
    assert pinned.backend is not None
    assert len(room.memory.residents) == 1


@on_loop
async def test_servers_and_what_takes_nothing_stay() -> None:
    """A custom service's server is called past its backend, and whoever holds no bytes makes no room: neither goes."""
    room = Room(150, idle_seconds=1)
    room.machine.extras = {"upstream": "http://127.0.0.1:1"}
    server = await room.put("server", 50)
    room.machine.extras = {}
    nothing = await room.put("nothing", 0)
    await room.put("a", 100)
    await room.put("b", 100)
    server.used_at = nothing.used_at = 0.0
    room.memory.sweep()
    assert await room.settled() == {"server", "nothing", "b"}


@on_loop
async def test_a_load_beside_another_is_not_measured_by_it() -> None:
    """Of two loads at the same time, neither is charged with the other's bytes, nor with less than it was before."""
    room = Room(1000)
    first = await room.put("a", 100)
    room.memory.unload(first, "test")
    await room.settled()
    room.machine.gate = asyncio.Event()
    asked = asyncio.create_task(first.infer(REQUEST))
    coming = asyncio.create_task(room.put("b", 500))
    await asyncio.sleep(0.02)
    room.machine.gate.set()
    await asyncio.gather(asked, coming)
    assert first.held == 100
    assert room.memory.held_bytes == 100


@pytest.mark.parametrize(
    ("claim", "loads"),
    [({"declared_bytes": 300}, []), ({"file_bytes": 300}, []), ({}, ["a"])],
    ids=["declared", "by its files", "measured"],
)
def test_what_can_never_fit_is_refused(claim: dict[str, int], loads: list[str]) -> None:
    """A version larger than the budget is refused, before its load where that can be told; nothing of it stays."""

    @on_loop
    async def run() -> None:
        room = Room(200)
        with pytest.raises(OutOfMemory, match="a version 1 takes 300 bytes, which does not fit into the 200 bytes"):
            await room.put("a", 300, **claim)
        assert room.machine.loads == loads
        assert room.machine.open == []
        assert room.memory.held_bytes == 0

    run()


@on_loop
async def test_the_first_load_of_a_backend_brings_its_libraries() -> None:
    """What a backend's first load takes for good is not charged to the model, and the second is charged in full."""
    room = Room(1 << 30)
    room.machine.sizes["a"] = 40 << 20
    claims = [Claim("a", version, 8 << 20, kind="ort") for version in (1, 2)]
    costs = [(await room.memory.admit(claim, lambda: room.machine.load("a"))).cost >> 20 for claim in claims]
    assert costs == [8, 40]


@on_loop
async def test_waiting_is_bounded_in_number() -> None:
    """More requests than may wait for one load are told so at once."""
    room = Room(150, most_waiting=2)
    first = await room.put("a", 100)
    await room.put("b", 100)
    await room.settled()
    room.machine.gate = asyncio.Event()
    waiting = [asyncio.create_task(first.infer(REQUEST)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="2 requests wait for a version 1"):
        await first.infer(REQUEST)
    room.machine.gate.set()
    await asyncio.gather(*waiting)


@on_loop
async def test_waiting_is_bounded_in_time() -> None:
    """Who has waited as long as configured is told to come again, and the load goes on for whoever comes next."""
    room = Room(150, wait_seconds=0.05)
    first = await room.put("a", 100)
    await room.put("b", 100)
    await room.settled()
    room.machine.gate = asyncio.Event()
    with pytest.raises(ModelNotReady, match=r"a version 1 was not loaded within 0\.05 seconds"):
        await first.infer(REQUEST)
    room.machine.gate.set()
    await first.infer(REQUEST)
    assert room.machine.loads == ["a", "b", "a"]


@on_loop
async def test_no_room_in_time() -> None:
    """A request whose model finds no room because all others are busy gets an error that may be repeated."""
    room = Room(150, wait_seconds=0.05)
    first = await room.put("a", 100)
    second = await room.put("b", 100)
    await room.settled()
    backend = _backend(second)
    backend.may_answer.clear()
    running = asyncio.create_task(second.infer(REQUEST))
    await asyncio.sleep(0)
    with pytest.raises((OutOfMemory, ModelNotReady)):
        await first.infer(REQUEST)
    backend.may_answer.set()
    await running


@on_loop
async def test_a_caller_who_leaves_stops_nobody() -> None:
    """A request that is given up while it waits leaves the load to the others."""
    room = Room(150)
    first = await room.put("a", 100)
    await room.put("b", 100)
    await room.settled()
    room.machine.gate = asyncio.Event()
    leaving, staying = (asyncio.create_task(first.infer(REQUEST)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    room.machine.gate.set()
    await staying
    assert leaving.cancelled()
    assert first.users == 0


@on_loop
async def test_a_failed_reload_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure to load again is a 503 with its reason, told for a while without another try, and leaves no bytes."""
    room = Room(150)
    first = await room.put("a", 100)
    await room.put("b", 100)
    await room.settled()
    room.machine.failure = LoadFailed("the file is broken")
    for _ in range(3):
        with pytest.raises(ModelNotReady, match="a version 1 could not be loaded again: the file is broken"):
            await first.infer(REQUEST)
    assert room.machine.loads == ["a", "b", "a"]
    assert room.memory.held_bytes == 0
    room.machine.failure = None
    monkeypatch.setattr("gateway.residency.monotonic", lambda: float("inf"))
    await first.infer(REQUEST)


@on_loop
async def test_changed_files_do_not_answer_for_the_old_ones() -> None:
    """A version whose files say something else by now is not served as the one that callers were told of."""
    room = Room(150)
    first = await room.put("a", 100)
    await room.put("b", 100)
    await room.settled()
    room.machine.version = 2
    with pytest.raises(ModelNotReady, match="the files of a version 1 have changed"):
        await first.infer(REQUEST)
    assert "a" not in await room.settled()


@on_loop
async def test_idle_versions_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a budget, a version that nobody has asked for the configured time is unloaded, and comes back."""
    room = Room(0, idle_seconds=60)
    first = await room.put("a", 100)
    room.memory.sweep()
    assert await room.settled() == {"a"}
    first.used_at -= 61
    room.memory.sweep()
    assert await room.settled() == set()
    await first.infer(REQUEST)
    assert await room.settled() == {"a"}
    assert room.memory.evictions == {("a", "idle"): 1}


@pytest.mark.parametrize("away", [False, True])
def test_close_gives_everything_back(away: bool) -> None:
    """A version that is closed, in memory or not, is forgotten with all its bytes."""

    @on_loop
    async def run() -> None:
        room = Room(150)
        first = await room.put("a", 100)
        if away:
            await (await room.put("b", 100)).close()
        await first.close()
        assert room.memory.held_bytes == 0
        assert not room.memory.residents
        assert room.machine.open == []

    run()


@on_loop
async def test_close_ends_a_reload() -> None:
    """Whoever waits for a version that is unloaded for good is told so."""
    room = Room(150)
    first = await room.put("a", 100)
    await room.put("b", 100)
    await room.settled()
    room.machine.gate = asyncio.Event()
    waiting = asyncio.create_task(first.infer(REQUEST))
    await asyncio.sleep(0)
    await first.close()
    with pytest.raises(ModelNotReady, match="a version 1 has been unloaded"):
        await waiting


@on_loop
async def test_many_models_in_little_room() -> None:
    """Whatever the order of requests, each is answered and what is in memory stays within the budget."""
    room = Room(250, wait_seconds=5.0)
    models = [await room.put(f"m{number}", 100) for number in range(6)]
    most = 0

    async def ask(start: int) -> None:
        nonlocal most
        for step in range(20):
            await models[(start + step * 5) % 6].infer(REQUEST)
            most = max(most, room.machine.resident())

    await asyncio.gather(*(ask(start) for start in range(4)))
    assert most <= 250
    assert all(one.users == 0 for one in models)
