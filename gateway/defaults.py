"""What the platform that started this process says: tables that lie under those of the configuration file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway import plugins
from gateway.config import Config, ConfigError, convert, read_toml

MODEL_SOURCES = ("models_dir", "models")
"""Whoever names one of these means no other models."""

Tables = dict[str, Any]


def configured(file: Path | None, models: Sequence[Path] = ()) -> Config:
    """The file's configuration, over what the platform says; `models` replace the models that either names."""
    own = read_toml(file, file.name) if file else {}
    chosen = own.get("gateway", {}).get("protocols", "all") if isinstance(own.get("gateway", {}), dict) else "all"
    tables: Tables = {}
    for name in plugins.names("adapters") if chosen == "all" or not isinstance(chosen, list) else chosen:
        tables = _over(_said(str(name)), tables)
    if models or any(key in own for key in MODEL_SOURCES):
        tables = {key: value for key, value in tables.items() if key not in MODEL_SOURCES}
    if models:
        own = {key: value for key, value in own.items() if key != "models"}
        own["models_dir"] = [str(folder.absolute()) for folder in models]
    return convert(_over(own, tables), Config, file.name if file else "defaults")


def _said(protocol: str) -> Tables:
    """The tables that the protocol's platform gives, if there is one and it has started us."""
    module = plugins.load("adapters", protocol, "create")
    if not hasattr(module, "serve_defaults"):
        return {}
    try:
        tables: Tables = module.serve_defaults()
    except ValueError as error:
        raise ConfigError(f"{protocol}: {error}") from None
    return tables


def _over(upper: Tables, lower: Tables) -> Tables:
    """Both, table by table; where both give a value it is the upper one's."""
    merged = lower | upper
    for key in upper.keys() & lower.keys():
        if isinstance(upper[key], dict) and isinstance(lower[key], dict):
            merged[key] = _over(upper[key], lower[key])
    return merged
