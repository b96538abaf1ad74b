"""ONNX Runtime sessions, one way to make them; a test puts its own in their place."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import onnxruntime
from msgspec import Meta, Struct

from backends._arena import arena
from backends._cuda import CUDA_PROVIDER, cuda_problem

log = logging.getLogger("tensorgate.ort")

Provider = Literal["CUDA", "CPU"]

SILENT = 4
"""ONNX Runtime's "fatal only": every error is raised too, and logged here."""

_LEVELS = {
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "off": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[ort]` table of model.toml."""

    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Threads that one run may use; more pays for large models only."""
    optimization: Literal["all", "extended", "basic", "off"] = "all"
    """How far ONNX Runtime rewrites the graph at load."""
    fallback: bool = False
    """With device "cuda": whether the CPU takes over when CUDA fails at run time. With "auto" it always does."""
    cuda_device: Annotated[int, Meta(ge=0, le=127)] = 0
    """Which of the visible CUDA devices to use."""


class Session(Protocol):
    """What is used of an `onnxruntime.InferenceSession`."""

    def run(self, output_names: Sequence[str], input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Everything asked for, in that order; setting `run_options.terminate` ends it early."""


class Model(Struct, frozen=True):
    """What a session is made from."""

    file: Path
    rewritten: bytes | None = None
    """Used instead of the file; its external data still lies beside the file."""
    sized_by_values: bool = False
    """Whether a client decides how much memory a run takes."""


class Sessions(Protocol):
    """Where sessions come from."""

    def cuda_problem(self) -> str | None:
        """Why CUDA cannot be used, or None."""

    def open(self, model: Model, config: Config, provider: Provider) -> Session:
        """Blocks; raises whatever ONNX Runtime raises, or RuntimeError if the provider does not start."""


class OnnxRuntime:
    """Sessions of the installed ONNX Runtime."""

    def cuda_problem(self) -> str | None:
        """Why CUDA cannot be used on this machine, or None."""
        return cuda_problem()

    def open(self, model: Model, config: Config, provider: Provider) -> Session:
        """A session on that provider and no other, save for operators that CUDA lacks."""
        try:
            return _open(model, config, provider, config.optimization)
        except Exception as error:
            # NOTE: some quantized graphs fail in the higher optimizations and load without them.
            if config.optimization in ("basic", "off"):
                raise
            try:
                session = _open(model, config, provider, "basic")
            except Exception:
                raise error from None
            log.warning("loaded with optimization = 'basic', because %r fails: %s", config.optimization, error)
            return session


def stoppable() -> onnxruntime.RunOptions:
    """Options of a run that may be ended between two of its nodes, from another thread."""
    return onnxruntime.RunOptions()


def _open(model: Model, config: Config, provider: Provider, optimization: str) -> Session:
    session = onnxruntime.InferenceSession(
        str(model.file) if model.rewritten is None else model.rewritten,
        _options(model, config, optimization),
        providers=_providers(config, provider),
        # Its own fallback prints to stdout and tells nobody.
        enable_fallback=0,
        read_config_from_model=0,
    )
    # The wrapper keeps the bytes, to make itself anew in the fallback that is off.
    session._model_bytes = None
    if provider == "CUDA" and CUDA_PROVIDER not in session.get_providers():
        raise RuntimeError("the CUDA execution provider does not start")
    return session  # type: ignore[no-any-return]


def _options(model: Model, config: Config, optimization: str) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = config.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = _LEVELS[optimization]
    options.log_severity_level = SILENT
    # PERF: a spinning thread burns a core for nothing between requests, and steals it from the event loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if model.sized_by_values and arena.make():
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    if model.rewritten is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.file.parent))
    return options


def _providers(config: Config, provider: Provider) -> list[str | tuple[str, dict[str, str]]]:
    if provider == "CPU":
        return ["CPUExecutionProvider"]
    onnxruntime.set_default_logger_severity(SILENT)  # pragma: no cover (cuda)
    return [(CUDA_PROVIDER, {"device_id": str(config.cuda_device)}), "CPUExecutionProvider"]
