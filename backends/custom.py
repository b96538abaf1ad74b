"""A server of the user's own, any HTTP API: started and kept alive here, or somewhere else at a URL.

It takes no tensors: its service's calls are passed on as they come, to the address that the metadata tells.
"""

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from backends._server import Launch, ServerProcess
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import Backend, BackendStatus, ModelSource, Upstream
from gateway.types import InferenceRequest, InferenceResponse, ModelMetadata

PLATFORM = "custom"
OWN_SERVER_KEY = "command"
"""With this key there is a process to start."""

Seconds = Annotated[float, Meta(gt=0, le=86400)]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[custom]` table of model.toml: either a command or a URL."""

    command: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Started in the version's folder; `{port}` in it, and the variable PORT, are the port to listen on."""
    url: str = ""
    """A server that runs already."""
    environment: dict[str, str] = {}
    parameters: dict[str, str | int | float | bool] = {}
    """Arguments after the command, as `--name=value`."""
    ready_path: str = ""
    """Answers below 400 once the server can work; without it, it can when it takes connections."""
    start_seconds: Seconds = 60.0
    stop_seconds: Seconds = 10.0
    """From SIGTERM to SIGKILL."""
    connect_seconds: Seconds = 5.0
    idle_seconds: Seconds = 300.0
    """How long the server may say nothing while a call waits for it, or a websocket is open."""


async def load(source: ModelSource, config: Config) -> Backend:
    """The server, ready to be called. Raises LoadFailed."""
    if bool(config.command) == bool(config.url):
        raise LoadFailed("custom: give either command or url")
    if config.url:
        return CustomBackend(source, config, _checked(config.url), None)
    process = ServerProcess(
        Launch(
            name=f"{source.name} version {source.version}",
            command=(*config.command, *_arguments(config)),
            folder=source.directory,
            environment=config.environment,
            ready_path=config.ready_path,
            start_seconds=config.start_seconds,
            stop_seconds=config.stop_seconds,
        )
    )
    await process.start()
    return CustomBackend(source, config, process.url, process)


class CustomBackend:
    """One version of a user's server."""

    def __init__(self, source: ModelSource, config: Config, url: str, process: ServerProcess | None) -> None:
        upstream = Upstream(url, config.connect_seconds, config.idle_seconds)
        self.metadata = ModelMetadata(source.name, source.version, PLATFORM, {}, extras={"upstream": upstream})
        self._process = process

    @property
    def status(self) -> BackendStatus:
        """Where the server runs, and whether it does."""
        if self._process is None:
            return BackendStatus("remote")
        return BackendStatus("process", self._process.trouble)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Refuse: there are no tensors here."""
        raise InvalidTensor("this is a custom service: call its own paths under /services/NAME/")

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """Refuse, as `infer` does."""
        yield await self.infer(request)

    async def close(self) -> None:
        """End the server, if it was started here."""
        if self._process is not None:
            await self._process.close()


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
        _ = parts.port
    except ValueError:
        good = None
    if not good or "@" in url:
        raise LoadFailed(
            "custom.url: expected http://HOST[:PORT][/PATH] or https://..., without user, query or fragment"
        )
    return url.rstrip("/")


def _arguments(config: Config) -> tuple[str, ...]:
    return tuple(
        f"--{name}={msgspec.json.encode(value).decode() if isinstance(value, bool) else value}"
        for name, value in config.parameters.items()
    )
