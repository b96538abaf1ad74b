"""A models folder, the models loaded from it by fake plugins, and what they went through."""

import asyncio
import functools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType

from msgspec import Struct

from gateway.config import ConfigError
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import BackendStatus, ModelSource
from gateway.models import LOADS_AT_ONCE, Models
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata, Signature

PATIENCE = 10.0


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test as a plain function that runs on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE))

    return run


def put(path: Path, text: str = "x") -> Path:
    """A file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


class FakeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The table of the fake backend and of the fake wrappers."""

    level: int = 0


class FakeBackend:
    """Answers nothing, but knows what became of it."""

    def __init__(self, source: ModelSource, config: FakeConfig) -> None:
        signature = Signature("serving_default", "predict", {}, {})
        self.metadata = ModelMetadata(source.name, source.version, "fake", {"serving_default": signature})
        self.status = BackendStatus("CPU", "CUDA is not here", 1)
        self.source = source
        self.config = config
        self.closed = False

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        raise InvalidTensor("fake")

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        yield await self.infer(request)

    async def close(self) -> None:
        self.closed = True


class FakeWrapper(FakeBackend):
    """A wrapper that shows the order it was put on in."""

    def __init__(self, inner: FakeBackend, config: FakeConfig, source: ModelSource) -> None:
        super().__init__(source, config)
        self.inner = inner

    async def close(self) -> None:
        await self.inner.close()
        self.closed = True


class Stage:
    """Stands where the plugins are, and directs how loads go."""

    def __init__(self) -> None:
        self.made: list[FakeBackend] = []
        self.failures: dict[str, Exception] = {}
        """By model, or by model/version."""
        self.gate: asyncio.Event | None = None
        self.loading: list[str] = []
        self.most = 0
        self.full = asyncio.Event()
        """Set once as many loads as are allowed run at the same time."""
        self.cancelled: list[str] = []

    def plugin(self, kind: str, name: str, exports: str) -> ModuleType:
        known = {"load": ["ort", "echo"], "wrap": ["image", "tiling", "brittle"]}[exports]
        if name not in known:
            raise ConfigError(
                f"no {'backend' if exports == 'load' else 'wrapper'} {name!r}; there are: {', '.join(known)}"
            )
        module = ModuleType(name)
        module.Config = FakeConfig  # type: ignore[attr-defined]
        module.load = self.load  # type: ignore[attr-defined]
        module.wrap = self.break_down if name == "brittle" else FakeWrapper  # type: ignore[attr-defined]
        return module

    async def load(self, source: ModelSource, config: FakeConfig) -> FakeBackend:
        what = f"{source.name}/{source.version}"
        self.loading.append(what)
        self.most = max(self.most, len(self.loading))
        if self.most >= LOADS_AT_ONCE:
            self.full.set()
        try:
            await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(what)
            raise
        finally:
            self.loading.remove(what)
        failure = self.failures.get(what) or self.failures.get(source.name)
        if failure is not None:
            raise failure
        self.made.append(FakeBackend(source, config))
        return self.made[-1]

    def break_down(self, backend: FakeBackend, config: FakeConfig, source: ModelSource) -> FakeBackend:
        raise LoadFailed("the wrapper does not fit")


class Scene:
    """A models folder, the models loaded from it, and what they went through."""

    def __init__(self, root: Path, stage: Stage) -> None:
        self.root = root
        self.stage = stage
        self.models = Models([root], "cpu", on_change=self._changed, drain_seconds=60.0)
        self.history: list[dict[str, str]] = []
        self._change = asyncio.Event()

    def put(self, name: str, text: str = "x") -> None:
        put(self.root / name, text)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.root / name)

    async def notice(self) -> None:
        """Two looks, which is what a change takes; the loads that follow are only begun."""
        await self.models.look()
        await self.models.look()

    async def settle(self) -> None:
        """Two looks, and the loads that follow."""
        await self.models.refresh()
        await self.models.refresh()

    def told(self) -> dict[str, str]:
        """Every version's state, with its error."""
        return {
            f"{one.name}/{one.version}": f"{one.state}: {one.error}" if one.error else one.state
            for one in self.models.describe()
        }

    def states_of(self, what: str) -> list[str]:
        """The states that one version went through, each once."""
        states = [told.get(what, "") for told in self.history]
        return [state for state, before in zip(states, ["", *states], strict=False) if state != before]

    async def until(self, what: str, state: str) -> None:
        """Wait for the state of one version."""
        while self.told().get(what) != state:
            self._change.clear()
            await self._change.wait()

    def _changed(self) -> None:
        self.history.append(self.told())
        self._change.set()
