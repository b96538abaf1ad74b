"""A user's Python class, as Seldon's wrapper would serve it, in processes of its own."""

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from backends._pool import Pool
from backends._pool_config import WorkersConfig
from backends._pooled import Pooled
from backends._ports import check_wanted
from backends._signatures import not_found
from backends._worker import Launch
from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import Backend, BackendStatus, ModelSource
from gateway.types import (
    DEFAULT_SIGNATURE,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Signature,
    TensorSpec,
)

PLATFORM = "python_class"
INPUT, OUTPUT = "X", "Y"
CALLS = {
    DEFAULT_SIGNATURE: "predict",
    **{
        name: name
        for name in ("transform_input", "transform_output", "route", "aggregate", "send_feedback", "health_status")
    },
}
"""Signature to the method that it calls."""
SHOWN_VARIABLES = (
    "PREDICTIVE_UNIT_ID",
    "PREDICTIVE_UNIT_IMAGE",
    "MODEL_METADATA",
    "INCLUDE_METRICS_IN_CLIENT_RESPONSE",
)
"""What Seldon tells the wrapper, not the class: adapters may see these of the class's environment."""
FREE_INPUTS = frozenset({"aggregate", "send_feedback"})
NEVER_REPEATED = frozenset({"send_feedback"})

OUTPUT_VARIABLE = "TENSORGATE_OUTPUT"

OWN_WORKERS = True
"""The gateway needs no pool around this backend."""

HERE = Path(__file__).resolve().parent


class Config(WorkersConfig, frozen=True, forbid_unknown_fields=True):
    """The `[pyclass]` table of model.toml; feedback is never given twice, whatever `retry` says."""

    entry: str = "inference_service"
    """`module:Class`, or as for Seldon: `Module` for the class of that name in it, or `package.module.Class`."""
    parameters: dict[str, Any] | None = None
    """The constructor's keywords; without them, what PREDICTIVE_UNIT_PARAMETERS in `environment` says."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    python: str = ""
    """Another interpreter, with numpy: absolute, a name on PATH, or relative to the model's folder."""


async def load(source: ModelSource, config: Config) -> Backend:
    """The class in its workers, ready. Raises LoadFailed."""
    if source.output is not None:
        _make(source.output)
    pool = Pool(_launch(source, config), config.settings())
    told = await pool.start()
    extras = {name: told[name] for name in ("has", "init_metadata") if name in told}
    shown = {name: config.environment[name] for name in SHOWN_VARIABLES if name in config.environment}
    return UserClass(source, pool, extras | ({"environment": shown} if shown else {}))


def _make(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoadFailed(f"its output folder cannot be made: {error.strerror}") from None


def _launch(source: ModelSource, config: Config) -> Launch:
    return Launch(
        name=f"{source.name} version {source.version}",
        command=(_interpreter(config.python, source.root), str(HERE / "_child.py")),
        folder=source.directory,
        environment=config.environment | ({OUTPUT_VARIABLE: str(source.output)} if source.output else {}),
        start={
            "id": 0,
            "entry": config.entry,
            "parameters": config.parameters,
            "folder": str(source.directory),
            "shims": str(HERE / "shims"),
            "memory_bytes": config.memory_mb << 20,
        },
    )


def _interpreter(python: str, folder: Path) -> str:
    if not python:
        return sys.executable
    # Not resolved: a virtual environment is told by the link.
    found = str(folder / python) if os.sep in python else shutil.which(python)
    if found is None or not os.access(found, os.X_OK):
        raise LoadFailed(f"pyclass.python: there is no interpreter {python!r}")
    return found


def _signature(name: str) -> Signature:
    inputs = {INPUT: TensorSpec(INPUT, "any", None)}
    return Signature(name, "predict", inputs, {OUTPUT: TensorSpec(OUTPUT, "any", None)})


class UserClass(Pooled):
    """One loaded version of a user's class."""

    def __init__(self, source: ModelSource, pool: Pool, extras: Mapping[str, Any]) -> None:
        signatures = {name: _signature(name) for name in CALLS}
        self.metadata = ModelMetadata(source.name, source.version, PLATFORM, signatures, extras=extras)
        super().__init__(pool)

    @property
    def status(self) -> BackendStatus:
        """Workers that are missing show in the note."""
        ready, wanted = self._pool.size
        return BackendStatus("python", "" if ready == wanted else f"{ready} of {wanted} workers are ready")

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Call the method once, or once more if its worker ended on the way."""
        header = _header(request)
        may_retry = request.signature not in NEVER_REPEATED
        return _told(await self._pool.infer(header, request.inputs, request.deadline, may_retry))

    async def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """What a method yields, part by part; the answer of one that does not yield is one part."""
        parts = self._pool.stream(_header(request), request.inputs, request.deadline)
        try:
            async for part in parts:
                yield _told(part)
        finally:
            await parts.aclose()  # type: ignore[attr-defined]


def _header(request: InferenceRequest) -> dict[str, Any]:
    call = CALLS.get(request.signature)
    if call is None:
        raise not_found(request.signature, CALLS)
    check_wanted(request.outputs, {OUTPUT: OUTPUT})
    if call not in FREE_INPUTS and request.inputs.keys() - {INPUT}:
        unknown = next(iter(request.inputs.keys() - {INPUT}))
        raise InvalidTensor(f"there is no input {unknown[:128]!r}; a user's class takes one, {INPUT!r}")
    return {"call": call, "parameters": dict(request.parameters)}


def _told(response: InferenceResponse) -> InferenceResponse:
    """A dict also as a tensor, its JSON text, for protocols that know nothing but tensors."""
    if response.outputs or "json" not in response.parameters:
        return response
    text = np.array([json.dumps(response.parameters["json"], ensure_ascii=False)], object)
    return InferenceResponse({OUTPUT: text}, response.parameters)
