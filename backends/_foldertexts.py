"""Texts and settings in a model's folder, read within a bound; whatever is wrong is said without a path."""

from pathlib import Path
from typing import Any

import msgspec

from backends import _confine
from gateway.errors import LoadFailed


def read_text(directory: Path, root: Path, name: str, most_bytes: int) -> str:
    """A text file of the folder. Raises LoadFailed."""
    file = _confine.model_file(directory, root, name)
    try:
        if file.stat().st_size > most_bytes:
            raise LoadFailed(f"{name} is larger than {most_bytes >> 20} MiB")
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise LoadFailed(f"{name} is not UTF-8") from None


def read_object(directory: Path, root: Path, name: str, most_bytes: int) -> dict[str, Any]:
    """A JSON object of the folder. Raises LoadFailed."""
    try:
        value = msgspec.json.decode(read_text(directory, root, name, most_bytes))
    except msgspec.DecodeError as error:
        raise LoadFailed(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise LoadFailed(f"{name} is not a JSON object")
    return value
