"""Copies of requests for a canary whose answers nobody is sent: they are compared with the stable deployment's."""

import asyncio
import logging
from time import monotonic

from msgspec.structs import replace

from gateway.differences import ShadowReports, compare
from gateway.errors import GatewayError
from gateway.interfaces import Infer
from gateway.lifecycle import Loaded
from gateway.offload import Offload
from gateway.routing import Service
from gateway.types import Call, InferenceRequest, InferenceResponse, Reply, Target

SECONDS = 30.0
"""How long a copy may take."""
HELD_BYTES = 64 << 20
"""All the bodies and answers that copies hold."""

_NEVER_COPIED = frozenset({"send_feedback", "health_status"})
"""Signatures of users' classes by which the model learns, or is only asked how it is."""

log = logging.getLogger("tensorgate.canary")


class Shadows:
    """The copies that run now. None delays or fails the request that it is made of."""

    def __init__(self, reports: ShadowReports, offload: Offload) -> None:
        self._reports = reports
        self._offload = offload
        self._running: dict[asyncio.Task[None], str] = {}
        self._held = 0

    def copy(
        self, service: Service, loaded: Loaded, operation: Infer, call: Call, target: Target,
        request: InferenceRequest, response: InferenceResponse,
    ) -> None:  # fmt: skip
        """Ask the canary's version what the stable one has just answered, if there is room for that."""
        assert service.canary is not None
        if request.signature in _NEVER_COPIED:
            return
        shadow = service.canary.shadow
        size = len(call.body) + sum(tensor.nbytes for tensor in response.outputs.values())
        running = sum(name == service.name for name in self._running.values())
        if running >= shadow.at_once or self._held + size > HELD_BYTES:
            self._reports.of(service.name).skipped += 1
            return
        loaded.acquire()
        self._held += size
        run = self._run(service.name, loaded, operation, call, target, response, shadow.tolerance)
        task = asyncio.create_task(run, name=f"shadow {service.name}")
        self._running[task] = service.name

        def ended(task: asyncio.Task[None]) -> None:
            del self._running[task]
            self._held -= size
            loaded.release()

        task.add_done_callback(ended)

    def _fail(self, service: str, error: Exception) -> None:
        """Count it; the log has each new reason once."""
        report = self._reports.of(service)
        report.failed += 1
        text = str(error) if isinstance(error, GatewayError) else type(error).__name__
        if text != report.last_failure:
            known = isinstance(error, GatewayError | TimeoutError)
            log.warning(
                "services.%s.canary: a copy of a request failed: %s", service, text, exc_info=None if known else error
            )
        report.last_failure = text

    async def finished(self) -> None:
        """Wait for those that run."""
        while self._running:
            await asyncio.wait(self._running)

    async def _run(
        self, service: str, loaded: Loaded, operation: Infer, call: Call, target: Target,
        response: InferenceResponse, tolerance: float,
    ) -> None:  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                request = await self._offload.decode(operation, call, target, loaded.metadata)
                if isinstance(request, Reply):
                    return
                other = await loaded.backend.infer(replace(request, deadline=monotonic() + SECONDS, stream=False))
                size = sum(tensor.nbytes for tensor in other.outputs.values())
                found = await self._offload.run(size, compare, response.outputs, other.outputs, tolerance)
        except Exception as error:
            self._fail(service, error)
        else:
            self._reports.add(service, found)
