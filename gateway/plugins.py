"""A name in the configuration becomes a module: `tfserving` is `adapters.tfserving`, else an entry point."""

import importlib
import importlib.util
import pkgutil
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Literal

from gateway.config import ConfigError

Kind = Literal["adapters", "backends"]

_ROLES = {"create": "adapter", "load": "backend", "wrap": "wrapper"}
"""What a module is that exports a function of that name."""

_BESIDE = Path(__file__).resolve().parent.parent


def names(kind: Kind) -> list[str]:
    """Every plugin there is, shipped or installed, in alphabetical order."""
    shipped = [module.name for module in pkgutil.iter_modules([str(_BESIDE / kind)]) if not module.name.startswith("_")]
    return sorted({*shipped, *(entry.name for entry in entry_points(group=f"tensorgate.{kind}"))})


def load(kind: Kind, name: str, exports: str) -> ModuleType:
    """The module that `name` stands for, checked to offer the function `exports` and a Config.

    Raises ConfigError with the list of what there is.
    """
    module = _find(kind, name)
    if module is not None and hasattr(module, exports):
        return module
    role = _ROLES.get(exports, kind[:-1])
    fault = f"no {role} {name!r}" if module is None else f"no {role}: {name!r} has no {exports}()"
    usable = [other for other in names(kind) if hasattr(_find(kind, other), exports)]
    raise ConfigError(f"{fault}; there are: {', '.join(usable)}")


def load_rpc() -> ModuleType:
    """The gRPC side of the gateway. Raises ConfigError where gRPC is not installed."""
    try:
        return importlib.import_module("gateway.rpc")
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise ConfigError("gateway.grpc_port: gRPC is not installed here; install tensorgate[grpc]") from None


def load_rpc_replay() -> ModuleType:
    """What asks again over gRPC. Raises ConfigError where gRPC is not installed."""
    try:
        return importlib.import_module("gateway.rpcreplay")
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise ConfigError("--grpc: gRPC is not installed here; install tensorgate[grpc]") from None


def load_tracing() -> ModuleType:
    """The module that makes spans. Raises ConfigError where OpenTelemetry is not installed."""
    try:
        return importlib.import_module("gateway.tracing")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        text = "telemetry.endpoint: OpenTelemetry is not installed here; install tensorgate[otel]"
        raise ConfigError(text) from None


def load_control() -> ModuleType:
    """The control plane, whose database no gateway without one needs."""
    return importlib.import_module("gateway.control.rule")


def _find(kind: Kind, name: str) -> ModuleType | None:
    if name.isidentifier() and not name.startswith("_"):
        _refuse_shadow(kind)
        if importlib.util.find_spec(f"{kind}.{name}"):
            return importlib.import_module(f"{kind}.{name}")
        for entry in entry_points(group=f"tensorgate.{kind}", name=name):
            module = entry.load()
            if isinstance(module, ModuleType):
                return module
    return None


def _refuse_shadow(kind: Kind) -> None:
    """PyPI has packages called `adapters` and `backends`; one of them before ours would be imported instead."""
    package = importlib.import_module(kind)
    if Path(package.__file__ or "").resolve().parent != _BESIDE / kind:
        raise ConfigError(
            f"another package named {kind!r} shadows tensorgate's own; uninstall it from this environment"
        )
