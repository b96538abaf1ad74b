"""What SageMaker tells the container that it starts: variables and folders, as defaults of the configuration.

SPEC: "Use your own inference code with hosting services", and the variables of the SageMaker inference toolkit.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLATFORM_FOLDER = Path("/opt/ml")
PORT = 8080
DRAIN_SECONDS = 25.0
"""SageMaker kills 30 seconds after SIGTERM."""

Tables = dict[str, Any]

TIMEOUTS = ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS")
"""How long a model may take for a request, in seconds; the first that is set counts."""

_LONGEST_SECONDS = 86_400
_MIB = 1 << 20
_STRATEGIES = {"multirecord": "MULTI_RECORD", "singlerecord": "SINGLE_RECORD"}


def serve_defaults() -> Tables:
    """The tables for this process; empty outside a container. Raises ValueError for a value that makes no sense."""
    return tables(os.environ, PLATFORM_FOLDER)


def tables(environment: Mapping[str, str], folder: Path) -> Tables:
    """The tables that the variables, and the folders below `folder`, ask for; nothing where they say nothing."""
    port = _number(environment, "SAGEMAKER_BIND_TO_PORT", 1)
    many = _flag(environment, "SAGEMAKER_MULTI_MODEL")
    payload = _number(environment, "SAGEMAKER_MAX_PAYLOAD_IN_MB", 0)
    said: Tables = {"protocols": {"sagemaker": own} if (own := _own(environment, payload)) else {}}
    said["limits"] = _limits(environment, payload)
    if many:
        said["models_control"] = {"enabled": True, "roots": str(folder / "models")}
    elif (folder / "model").is_dir():
        said |= _model(folder / "model")
    if port is not None or many or (folder / "model").is_dir():
        said["gateway"] = {"host": "0.0.0.0", "port": port or PORT, "drain_seconds": DRAIN_SECONDS}
    return {name: table for name, table in said.items() if table}


def _limits(environment: Mapping[str, str], payload: int | None) -> Tables:
    """The table [limits]."""
    table: Tables = {"body_bytes": payload * _MIB} if payload else {}
    for name in TIMEOUTS:
        if (seconds := _number(environment, name, 1)) is not None:
            table["service"] = {"deadline_ms": min(seconds, _LONGEST_SECONDS) * 1000}
            break
    return table


def _own(environment: Mapping[str, str], payload: int | None) -> Tables:
    """The table [protocols.sagemaker]."""
    strategy = environment.get("SAGEMAKER_BATCH_STRATEGY", "")
    named = _STRATEGIES.get(strategy.replace("_", "").lower())
    if strategy and named is None:
        raise ValueError(f"SAGEMAKER_BATCH_STRATEGY: expected MultiRecord or SingleRecord, got {strategy!r}")
    table = {
        "default_accept": environment.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT") or None,
        "batch_strategy": named,
        "max_payload_mb": payload,
        "max_concurrent_transforms": _number(environment, "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", 0) or None,
    }
    return {name: value for name, value in table.items() if value is not None}


def _model(folder: Path) -> Tables:
    """The unpacked archive is one model, or a folder of models."""
    names = {entry.name for entry in folder.iterdir()}
    single = {"model.onnx", "model.toml"} & names or any(name.isdecimal() for name in names)
    return {"models": {"model": str(folder)}} if single else {"models_dir": str(folder)}


def _flag(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in ("true", "1")


def _number(environment: Mapping[str, str], name: str, least: int) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and least <= int(text[:10]) and len(text) <= 10):
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {text!r}")
    return int(text)
