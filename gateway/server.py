"""From a configuration to a serving process: assembled, listening, and leaving in order."""

import asyncio
import contextlib
import ctypes
import functools
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import uvicorn

from gateway import plugins, residencymetrics
from gateway.accesslog import AccessLine, AccessLog
from gateway.app import Gateway
from gateway.batching import metrics as batchmetrics
from gateway.bounds import Bounds
from gateway.config import Config, ConfigError, ServiceConfig, folders
from gateway.connections import allow_files
from gateway.deferral import Deferrals
from gateway.fleet import DRAIN_NOTICE_SECONDS, Controls, FleetSummary
from gateway.leading import lead
from gateway.listener import Listener
from gateway.loads import Load
from gateway.model_control import ModelControl
from gateway.models import Models
from gateway.nodes import Nodes, OwnWorkers
from gateway.observe import Observer
from gateway.passes import Entrance, Passes, entrance
from gateway.paths import pages_of
from gateway.pipeline import Pipeline
from gateway.plane import Memory, Plane, draw
from gateway.protocol import bounded
from gateway.protocols import load_adapters
from gateway.proxy import Proxy
from gateway.recorders import recorders
from gateway.relay import MESSAGE_BYTES
from gateway.rereading import Read, Rereading
from gateway.residency import model_memory
from gateway.routing import Directory
from gateway.variants import Tallies
from gateway.websocket import WebSocketProtocol

log = logging.getLogger("tensorgate.server")


class Rpc(Protocol):
    """What gateway.rpc offers; without gRPC it is not even imported."""

    async def start(self) -> None:
        """Listen."""

    async def stop(self, seconds: float) -> None:
        """Refuse new calls and let the others finish, at most so long."""


class Server(Listener):
    """The listening side of this process."""

    rpc: Rpc | None = None
    """Listens beside it, and leaves with it."""
    drain_seconds = 0.0
    stop_at = 0.0
    """On the event loop's clock: when what is in flight, or is still to be answered, has had its time."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Both ports drain at the same time."""
        async with asyncio.TaskGroup() as tasks:
            if self.rpc is not None:
                tasks.create_task(self.rpc.stop(self.drain_seconds))
            await super().shutdown(sockets)


class Assembly:
    """Everything a process serves with, built but not started."""

    def __init__(
        self,
        config: Config,
        base: Path,
        roots: tuple[Path, ...],
        models: Callable[..., Models] = Models,
        passes: Passes | None = None,
    ) -> None:
        self.config = config
        self._base = base
        single = {name: base / folder for name, folder in config.models.items()}
        self.models = models(
            roots,
            config.gateway.device,
            single,
            output=lambda model: output_of(model, config, base),
            memory=model_memory(config.gateway),
        )
        self.adapters = load_adapters(config)
        self.bounds = Bounds(config)
        self.observer = Observer(
            self.models.describe,
            self.bounds.collect,
            lambda: residencymetrics.collect(self.models.memory),
            lambda: batchmetrics.collect(self.models.serving()),
        )
        self.observer.recorders = recorders(config, base)
        self.log = AccessLog() if config.gateway.access_log == "json" else None
        self.deferrals = Deferrals(config, base)
        self.pipeline = Pipeline(
            self.adapters,
            draw(config, base, self.models, self.adapters, memory=Memory(passes=passes)),
            self.observer,
            self._control(base),
            self.deferrals,
            self.bounds,
        )
        self.proxy = Proxy(lambda: self.pipeline.plane, config.limits, self.bounds)
        self.gateway = Gateway(
            self.pipeline,
            self.proxy,
            self.models,
            self.observer,
            config.limits,
            self.log,
            self.bounds.bodies,
            pages_of(config.gateway),
        )
        self.nodes = Nodes(OwnWorkers(self.models), self.busy, self.observer.series, self.observer.variants.tallies)
        self.nodes.adopt(config.services)
        self.rpc: Rpc | None = None
        if config.gateway.grpc_port:
            self.rpc = plugins.load_rpc().RpcServer(config, self.pipeline, self.observer, self.log, self.bounds.bodies)

    def prepare(self) -> None:
        """Make the folders that are written to. Raises ConfigError if one cannot be had."""
        self.deferrals.prepare()
        if self.observer.recorders is not None:
            self.observer.recorders.prepare()

    @property
    def directory(self) -> Directory:
        """The services as requests see them now."""
        return self.pipeline.plane.directory

    def apply(self, services: Mapping[str, ServiceConfig]) -> None:
        """Serve these from now on, all or none of them. Raises ConfigError."""
        self.draft(services)()

    def draft(self, services: Mapping[str, ServiceConfig]) -> Callable[[], None]:
        """What makes the gateway serve these from then on, once it is called. Raises ConfigError."""
        config = msgspec.structs.replace(self.config, services=dict(services))
        self.nodes.check(config.services)
        plane = draw(config, self._base, self.models, self.adapters, self.pipeline.plane)
        return functools.partial(self._adopt, config, plane)

    def _adopt(self, config: Config, plane: Plane) -> None:
        services = config.services
        self.pipeline.plane = plane
        self.bounds.limits.adopt(config)
        self.nodes.adopt(services)
        self.config = config
        canaried = {name for name, service in services.items() if service.canary is not None}
        plane.memory.turns.keep(canaried)
        plane.memory.checks.keep({key.hash for service in services.values() for key in service.keys})
        self.observer.variants.keep(canaried)
        self.observer.shadows.keep(canaried)

    def busy(self, service: str) -> tuple[int, int]:
        """Requests of a service that run, and that wait."""
        gate = self.bounds.limits.gate(service)
        return gate.running, len(gate.waiting)

    def _control(self, base: Path) -> ModelControl:
        control = self.config.models_control
        roots = folders(control.roots, base) or self.models.roots
        if control.enabled and not roots:
            raise ConfigError("models_control.roots: no folder is named that models may be loaded from")
        return ModelControl(roots, control.most_models, self.models, lambda: self.directory)


def output_of(model: str, config: Config, base: Path) -> Path | None:
    """The folder that the model may write to, under the version of the first service that names it."""
    if not config.output_dir:
        return None
    versions = (service.version for name, service in config.services.items() if (service.model or name) == model)
    return (base / config.output_dir).absolute() / next(versions, ServiceConfig().version) / model


class Serving:
    """An assembly on its socket, from the first request to the last."""

    def __init__(self, assembly: Assembly, sock: socket.socket) -> None:
        self.assembly = assembly
        self._sock = sock
        self._server = _server_of(assembly)
        self._hurried: list[asyncio.Task[None]] = []  # a task that nobody holds may be collected

    def stop(self) -> None:
        """Drain; the second time, leave at once."""
        assembly, server, loop = self.assembly, self._server, asyncio.get_running_loop()
        if assembly.pipeline.draining:
            log.warning("second signal: leaving at once")
            server.should_exit = server.force_exit = True
            assembly.deferrals.hurry()
            if server.rpc is not None:
                self._hurried.append(loop.create_task(server.rpc.stop(0)))
            return
        assembly.pipeline.draining = True
        server.stop_at = loop.time() + DRAIN_NOTICE_SECONDS + assembly.config.gateway.drain_seconds
        loop.call_later(DRAIN_NOTICE_SECONDS, setattr, server, "should_exit", True)

    def keep_socket(self, kept: bool) -> None:
        """Whether another process goes on listening on the socket when this one leaves."""
        self._server.keeps_sockets = kept

    async def run(self, *background: Coroutine[Any, Any, None]) -> None:
        """Serve until `stop`, and drain; what runs in the background is cancelled then."""
        assembly, server = self.assembly, self._server
        if server.rpc is not None:
            await server.rpc.start()
        raise_malloc_thresholds()
        allow_files()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve([self._sock]))
            beside = [*background, assembly.deferrals.clean(), assembly.bounds.pressure.watch()]
            if assembly.log is not None:
                beside.append(assembly.log.run())
            if (kept := assembly.observer.recorders) is not None:
                beside.append(kept.run())
            running = [tasks.create_task(one) for one in beside]
            await serving
            await assembly.deferrals.close(server.stop_at - asyncio.get_running_loop().time())
            for task in running:
                task.cancel()
        if kept is not None:
            await kept.close()
        # Whoever is still in flight now has had its time, or a second signal ended it.
        await assembly.proxy.close()
        await assembly.models.close(drain_seconds=0.1)


class Lone:
    """The fleet of one: this process does everything."""

    def __init__(self, assembly: Assembly, sock: socket.socket) -> None:
        self._assembly = assembly
        self._sock = sock

    async def apply(self, services: Mapping[str, ServiceConfig]) -> None:
        """Serve these from now on, all or none of them. Raises ConfigError."""
        self._assembly.apply(services)

    async def describe(self) -> FleetSummary:
        """How it stands."""
        models, shadows = self._assembly.models, self._assembly.observer.shadows.reports()
        told = tuple(models.describe()), dict(models.problems), shadows
        return FleetSummary(models.ready, self._assembly.pipeline.draining, *told)

    async def metrics(self) -> bytes:
        """The page of metrics."""
        return self._assembly.observer.page()

    async def variants(self) -> Tallies:
        """How the variants of services with canaries do."""
        return self._assembly.observer.variants.tallies()

    async def requests(self) -> Sequence[AccessLine]:
        """The latest requests, oldest first."""
        log = self._assembly.log
        return () if log is None else tuple(log.latest)

    async def loads(self) -> Mapping[str, Load]:
        """How much the deployments have to do whose load decides how many nodes they have."""
        return self._assembly.nodes.loads()

    async def scale(self, deployment: str, nodes: int) -> None:
        """So many nodes for that deployment from now on."""
        self._assembly.nodes.scale(deployment, nodes)

    def entrance(self) -> Entrance:
        """Where its services are called, and what opens them for those who have signed in."""
        return entrance(self._sock, self._assembly.pipeline.plane.memory.passes)


async def serve(
    assembly: Assembly,
    sock: socket.socket,
    started: Callable[[int], None],
    controls: Controls | None = None,
    admin: socket.socket | None = None,
    read: Read | None = None,
) -> None:
    """Serve in this process until a signal, then drain; `started` gets the port once every model has been tried.

    The control plane, if there is one, is made for this process and answers on the socket `admin`. On SIGHUP `read`
    reads the configuration file again.
    """
    serving = Serving(assembly, sock)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.stop)
    background = [_load(assembly, lambda: started(sock.getsockname()[1]))]
    leading, adopt = lead(Lone(assembly, sock), assembly.config, controls, admin)
    background.append(leading)
    if read is not None:
        background.append(Rereading(read, adopt, assembly.config).run())
    await serving.run(*background)


async def _load(assembly: Assembly, started: Callable[[], None]) -> None:
    await assembly.models.start()
    settle_heap()
    started()
    await assembly.models.watch(assembly.config.gateway.poll_seconds)


def settle_heap() -> None:
    """What is loaded stays: the collector need not walk it again and again."""
    # PERF: a full collection over the libraries and models costs tens of milliseconds, in which nobody is answered.
    gc.collect()
    gc.freeze()


def _server_of(assembly: Assembly) -> Server:
    config = assembly.config.gateway
    server = Server(
        uvicorn.Config(
            assembly.gateway,
            http=bounded(assembly.bounds.connections),
            ws=WebSocketProtocol,
            ws_max_size=MESSAGE_BYTES,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=round(config.drain_seconds),
        )
    )
    server.rpc, server.drain_seconds = assembly.rpc, config.drain_seconds
    return server


def raise_malloc_thresholds() -> None:
    """Keep freed blocks of request size in the heap instead of giving each back to the kernel."""
    # PERF: 1.9x requests/s at bodies of 100 KB, whose buffers would otherwise be mapped and unmapped every time.
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD: 32 MiB is the most that glibc takes
        libc.mallopt(-1, 64 << 20)  # M_TRIM_THRESHOLD
